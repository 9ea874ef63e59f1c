//! The place of a stream: how far the hits of each node were sent. Clients send it back as `Last-Event-ID`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::domain::hit::{NodeId, Position};

/// The most nodes in a place: those whose hits were sent last.
const MAX_NODES: usize = 32;
/// The version of the bytes.
const VERSION: u8 = 1;
const NUMBER_BYTES: usize = 8;
const SUM_BYTES: usize = 4;
/// The longest text of a place.
pub const MAX_TEXT_BYTES: usize = (1 + MAX_NODES * 2 * NUMBER_BYTES + SUM_BYTES).div_ceil(3) * 4;

/// How far the hits of each node were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPlace {
    /// The node whose hit was sent last is the last one.
    nodes: Vec<(u64, Position)>,
}

impl StreamPlace {
    /// How far the hits of a node were sent; `None`: there were none.
    pub fn of(&self, node: NodeId) -> Option<Position> {
        self.nodes.iter().find(|(known, _)| *known == short(node)).map(|(_, position)| *position)
    }

    /// Notes that hits of a node were sent up to a position. An earlier position changes nothing.
    pub fn advance_to(&mut self, node: NodeId, position: Position) {
        self.advance_node(short(node), position);
    }

    fn advance_node(&mut self, node: u64, position: Position) {
        let before = match self.nodes.last() {
            // Mostly.
            Some((last, _)) if *last == node => self.nodes.pop(),
            _ => self.nodes.iter().position(|(known, _)| *known == node).map(|at| self.nodes.remove(at)),
        };
        let position = before.map_or(position, |(_, before)| before.max(position));
        self.nodes.push((node, position));
        if self.nodes.len() > MAX_NODES {
            self.nodes.remove(0);
        }
    }

    /// Advances to another place, where that is further.
    pub fn merge(&mut self, other: &Self) {
        for (node, position) in &other.nodes {
            self.advance_node(*node, *position);
        }
    }

    /// Whether it is at least as far as another place.
    pub fn covers(&self, other: &Self) -> bool {
        other.nodes.iter().all(|(node, upto)| self.nodes.iter().any(|(known, sent)| known == node && sent >= upto))
    }

    /// The text of an event's id. It is opaque to clients.
    pub fn to_text(&self) -> String {
        let mut bytes = Vec::with_capacity(1 + self.nodes.len() * 2 * NUMBER_BYTES + SUM_BYTES);
        bytes.push(VERSION);
        for (node, position) in &self.nodes {
            bytes.extend_from_slice(&node.to_le_bytes());
            bytes.extend_from_slice(&position.0.to_le_bytes());
        }
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads the text of an event's id; `None` if it is none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT_BYTES {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (content, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
        let (VERSION, nodes) = content.split_first().map(|(version, nodes)| (*version, nodes))? else { return None };
        let (nodes, []) = nodes.as_chunks::<{ 2 * NUMBER_BYTES }>() else { return None };
        if crc32fast::hash(content).to_le_bytes() != *sum || nodes.len() > MAX_NODES {
            return None;
        }
        let mut place = Self::default();
        for bytes in nodes {
            let (node, position) = bytes.split_first_chunk::<NUMBER_BYTES>()?;
            let position = u64::from_le_bytes(position.try_into().ok()?);
            place.advance_node(u64::from_le_bytes(*node), Position(position));
        }
        Some(place)
    }
}

/// Half of a node's id, which is random: clients get no more of it.
fn short(node: NodeId) -> u64 {
    node.0.as_u64_pair().1
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn node(number: u128) -> NodeId {
        NodeId(Uuid::from_u128(number))
    }

    #[test]
    fn a_place_is_read_back_from_its_text() {
        let mut place = StreamPlace::default();
        assert_eq!(StreamPlace::parse(place.to_text().as_bytes()), Some(place.clone()));
        place.advance_to(node(1), Position(640));
        place.advance_to(node(2), Position(7));
        place.advance_to(node(1), Position(320));
        assert_eq!(
            (place.of(node(1)), place.of(node(2)), place.of(node(3))),
            (Some(Position(640)), Some(Position(7)), None)
        );
        let text = place.to_text();
        assert_eq!(StreamPlace::parse(text.as_bytes()), Some(place.clone()));
        let mut other = StreamPlace::default();
        other.advance_to(node(2), Position(9));
        other.merge(&place);
        assert_eq!((other.of(node(1)), other.of(node(2))), (Some(Position(640)), Some(Position(9))));
    }

    #[test]
    fn other_texts_are_no_places() {
        let mut place = StreamPlace::default();
        place.advance_to(node(1), Position(640));
        let text = place.to_text();
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            let read = StreamPlace::parse(&other);
            // The last character has bits that stand for nothing.
            assert!(read.is_none() || read == Some(place.clone()), "{at}");
            assert_eq!(StreamPlace::parse(&text.as_bytes()[..at]), None);
        }
        for other in ["", "x", "AA", &"A".repeat(MAX_TEXT_BYTES), &"A".repeat(100_000)] {
            assert_eq!(StreamPlace::parse(other.as_bytes()), None);
        }
    }

    #[test]
    fn a_place_is_bounded() {
        let mut place = StreamPlace::default();
        for number in 1..=100 {
            place.advance_to(node(number), Position(1));
        }
        let text = place.to_text();
        assert!(text.len() <= MAX_TEXT_BYTES);
        assert_eq!(StreamPlace::parse(text.as_bytes()), Some(place.clone()));
        assert_eq!((place.of(node(100)), place.of(node(68))), (Some(Position(1)), None));
    }
}
