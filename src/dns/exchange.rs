//! The two DNS queries for a name, and the meaning of their responses.

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::MOST_ADDRESSES;

/// The largest number of CNAME records in a row.
const MOST_ALIASES: usize = 16;

/// The addresses of a name; empty if it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedAddresses {
    pub addresses: Vec<IpAddr>,
    /// How long the result is valid, by the TTLs of the records.
    pub ttl: Duration,
}

/// The state of a query.
#[derive(Debug)]
enum ExchangeState {
    Open,
    Answered(ResolvedAddresses),
    /// The server failed, or refused the query.
    Failed,
}

#[derive(Debug)]
struct Question {
    id: u16,
    query: Query,
    packet: Vec<u8>,
    state: ExchangeState,
}

/// The result of a received packet.
#[derive(Debug, PartialEq, Eq)]
pub enum ReceivedPacket {
    /// Not a response to an open query: ignored, because anyone may have sent it.
    Ignored,
    Answer,
    /// The response is too long for a datagram; send this query again over TCP.
    Truncated(Vec<u8>),
}

/// The queries for the IPv6 and the IPv4 addresses of one name.
#[derive(Debug)]
pub struct Exchange([Question; 2]);

impl Exchange {
    /// `None` if the name is not valid.
    pub fn new(name: &str) -> Option<Self> {
        let name = Name::from_labels(name.split('.').map(str::as_bytes)).ok()?;
        Some(Self([Question::new(&name, RecordType::AAAA)?, Question::new(&name, RecordType::A)?]))
    }

    /// The packets of all open queries. Failed queries are open again.
    pub fn ask(&mut self) -> impl Iterator<Item = &[u8]> {
        for question in &mut self.0 {
            if matches!(question.state, ExchangeState::Failed) {
                question.state = ExchangeState::Open;
            }
        }
        self.0.iter().filter(|question| question.is_open()).map(|question| &*question.packet)
    }

    /// Handles a packet from the server.
    pub fn receive(&mut self, packet: &[u8]) -> ReceivedPacket {
        let Ok(message) = Message::from_vec(packet) else { return ReceivedPacket::Ignored };
        let Some(index) = self.0.iter().position(|question| question.is_answered_by(&message)) else {
            return ReceivedPacket::Ignored;
        };
        let question = &mut self.0[index];
        if message.truncation {
            return ReceivedPacket::Truncated(question.packet.clone());
        }
        question.state = match message.response_code {
            // Some servers return NXDOMAIN for a name that has only addresses of the other family (RFC 4074), so the
            // other query still counts.
            ResponseCode::NoError | ResponseCode::NXDomain => ExchangeState::Answered(found(&question.query, &message)),
            _ => ExchangeState::Failed,
        };
        ReceivedPacket::Answer
    }

    /// Marks all open queries as failed: the server does not answer them.
    pub fn fail(&mut self) {
        for question in self.0.iter_mut().filter(|question| question.is_open()) {
            question.state = ExchangeState::Failed;
        }
    }

    pub fn has_open(&self) -> bool {
        self.0.iter().any(Question::is_open)
    }

    pub fn has_addresses(&self) -> bool {
        self.0
            .iter()
            .any(|question| matches!(&question.state, ExchangeState::Answered(found) if !found.addresses.is_empty()))
    }

    /// The result: all addresses of answered queries, if there are any or if both queries are answered.
    pub fn outcome(&self) -> Option<ResolvedAddresses> {
        let mut answered = self.0.iter().filter_map(|question| match &question.state {
            ExchangeState::Answered(found) => Some(found),
            ExchangeState::Open | ExchangeState::Failed => None,
        });
        let (first, second) = (answered.next()?, answered.next());
        if second.is_none() && first.addresses.is_empty() {
            return None;
        }
        let with_addresses = [Some(first), second].into_iter().flatten().filter(|found| !found.addresses.is_empty());
        let mut all = ResolvedAddresses { addresses: Vec::new(), ttl: Duration::MAX };
        for found in with_addresses {
            all.addresses.extend(&found.addresses);
            all.ttl = all.ttl.min(found.ttl);
        }
        if all.addresses.is_empty() {
            all.ttl = first.ttl.min(second.map_or(Duration::MAX, |found| found.ttl));
        }
        Some(all)
    }
}

impl Question {
    fn new(name: &Name, record_type: RecordType) -> Option<Self> {
        let query = Query::query(name.clone(), record_type);
        // With a random id.
        let mut message = Message::query();
        message.metadata.recursion_desired = true;
        message.add_query(query.clone());
        Some(Self { id: message.id, query, packet: message.to_vec().ok()?, state: ExchangeState::Open })
    }

    fn is_open(&self) -> bool {
        matches!(self.state, ExchangeState::Open)
    }

    fn is_answered_by(&self, message: &Message) -> bool {
        // A server that could not parse the query does not repeat it.
        let answers = matches!(message.response_code, ResponseCode::NoError | ResponseCode::NXDomain);
        let is_refused = message.queries.is_empty() && !answers;
        self.is_open()
            && message.id == self.id
            && message.message_type == MessageType::Response
            && message.op_code == OpCode::Query
            && (message.queries == [self.query.clone()] || is_refused)
    }
}

/// The addresses of the queried name. A recursive server includes all CNAME records on the way.
fn found(query: &Query, message: &Message) -> ResolvedAddresses {
    let of = |owner: &Name| {
        let owner = owner.clone();
        message.answers.iter().filter(move |record| record.name == owner && record.dns_class == DNSClass::IN)
    };
    let (mut owner, mut seconds) = (query.name.clone(), u32::MAX);
    for _ in 0..MOST_ALIASES {
        let alias = of(&owner).find_map(|record| match &record.data {
            RData::CNAME(target) => Some((target.0.clone(), record.ttl)),
            _ => None,
        });
        let Some((target, ttl)) = alias else { break };
        (owner, seconds) = (target, seconds.min(ttl));
    }
    let of_type = of(&owner).filter(|record| record.record_type() == query.query_type);
    let mut addresses = Vec::new();
    for record in of_type.take(MOST_ADDRESSES / 2) {
        addresses.extend(record.data.ip_addr());
        seconds = seconds.min(record.ttl);
    }
    if addresses.is_empty() {
        seconds = message.authorities.iter().find_map(negative_ttl).unwrap_or_default();
    }
    ResolvedAddresses { addresses, ttl: Duration::from_secs(u64::from(seconds)) }
}

/// How long a negative response is valid (RFC 2308).
fn negative_ttl(record: &Record) -> Option<u32> {
    match &record.data {
        RData::SOA(authority) => Some(record.ttl.min(authority.minimum)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::rdata::{A, CNAME};
    use proptest::prelude::*;

    use super::*;

    fn exchange() -> Exchange {
        Exchange::new("a.example").unwrap()
    }

    /// A genuine response to the query for IPv4 addresses.
    fn answer(exchange: &Exchange) -> Message {
        let Exchange([_, question]) = exchange;
        let mut answer = Message::response(question.id, OpCode::Query);
        answer.add_query(question.query.clone());
        let alias = Name::from_ascii("b.example.").unwrap();
        answer.add_answer(Record::from_rdata(question.query.name.clone(), 60, RData::CNAME(CNAME(alias.clone()))));
        answer.add_answer(Record::from_rdata(alias, 30, RData::A(A::new(192, 0, 2, 1))));
        answer
    }

    #[test]
    fn the_ttl_is_the_shortest_of_all_records_on_the_way() {
        let mut exchange = exchange();
        let packet = answer(&exchange).to_vec().unwrap();
        assert_eq!(exchange.receive(&packet), ReceivedPacket::Answer);
        assert!(exchange.has_open() && exchange.has_addresses());
        let found = ResolvedAddresses { addresses: vec![[192, 0, 2, 1].into()], ttl: Duration::from_secs(30) };
        assert_eq!(exchange.outcome(), Some(found));
        // The query was answered already.
        assert_eq!(exchange.receive(&packet), ReceivedPacket::Ignored);
    }

    #[test]
    fn the_two_questions_have_ids_by_chance() {
        let ids: std::collections::HashSet<u16> =
            (0..50).flat_map(|_| exchange().0.map(|question| question.id)).collect();
        assert!(ids.len() > 90, "{}", ids.len());
    }

    proptest! {
        #[test]
        fn no_packet_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut exchange = exchange();
            exchange.receive(&bytes);
            prop_assert!(!exchange.has_addresses());
        }

        #[test]
        fn no_damaged_answer_does_harm(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            let mut exchange = exchange();
            let mut packet = answer(&exchange).to_vec().unwrap();
            for (place, byte) in damage {
                let place = place.index(packet.len());
                packet[place] = byte;
            }
            exchange.receive(&packet);
            prop_assert!(exchange.outcome().is_none_or(|found| found.addresses.len() <= 1));
        }
    }
}
