//! The two questions that are asked of a name, and what the answers say.

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::MOST_ADDRESSES;

/// Names that lead to another one, in a row.
const MOST_ALIASES: usize = 16;

/// What a name has: nothing, where there are no addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub addresses: Vec<IpAddr>,
    /// How long this holds, by those who answered.
    pub holds_for: Duration,
}

/// Where a question stands.
#[derive(Debug)]
enum ExchangeState {
    Open,
    Answered(Found),
    /// The server could not or would not answer.
    Failed,
}

#[derive(Debug)]
struct Question {
    id: u16,
    query: Query,
    packet: Vec<u8>,
    state: ExchangeState,
}

/// What a packet was.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// No answer to an open question: it is ignored, for anybody may have sent it.
    Nothing,
    Answer,
    /// The answer is too long for a datagram; this is to be sent again over TCP.
    Truncated(Vec<u8>),
}

/// The questions for the IPv6 and the IPv4 addresses of one name.
#[derive(Debug)]
pub struct Exchange([Question; 2]);

impl Exchange {
    /// `None` where no name can be so.
    pub fn new(name: &str) -> Option<Self> {
        let name = Name::from_labels(name.split('.').map(str::as_bytes)).ok()?;
        Some(Self([Question::new(&name, RecordType::AAAA)?, Question::new(&name, RecordType::A)?]))
    }

    /// The packets of all open questions. Those that failed before are open again.
    pub fn ask(&mut self) -> impl Iterator<Item = &[u8]> {
        for question in &mut self.0 {
            if matches!(question.state, ExchangeState::Failed) {
                question.state = ExchangeState::Open;
            }
        }
        self.0.iter().filter(|question| question.is_open()).map(|question| &*question.packet)
    }

    /// Takes a packet from the server that was asked.
    pub fn hear(&mut self, packet: &[u8]) -> Heard {
        let Ok(message) = Message::from_vec(packet) else { return Heard::Nothing };
        let Some(index) = self.0.iter().position(|question| question.is_answered_by(&message)) else {
            return Heard::Nothing;
        };
        let question = &mut self.0[index];
        if message.truncation {
            return Heard::Truncated(question.packet.clone());
        }
        question.state = match message.response_code {
            // Some servers say of a name that has only the other kind that it is not there (RFC 4074), so both are asked for.
            ResponseCode::NoError | ResponseCode::NXDomain => ExchangeState::Answered(found(&question.query, &message)),
            _ => ExchangeState::Failed,
        };
        Heard::Answer
    }

    /// Takes note that the server answers none of the open questions.
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

    /// What is known of the name: all that was answered, if that is an address or both are answered.
    pub fn outcome(&self) -> Option<Found> {
        let mut answered = self.0.iter().filter_map(|question| match &question.state {
            ExchangeState::Answered(found) => Some(found),
            ExchangeState::Open | ExchangeState::Failed => None,
        });
        let (first, second) = (answered.next()?, answered.next());
        if second.is_none() && first.addresses.is_empty() {
            return None;
        }
        let with_addresses = [Some(first), second].into_iter().flatten().filter(|found| !found.addresses.is_empty());
        let mut all = Found { addresses: Vec::new(), holds_for: Duration::MAX };
        for found in with_addresses {
            all.addresses.extend(&found.addresses);
            all.holds_for = all.holds_for.min(found.holds_for);
        }
        if all.addresses.is_empty() {
            all.holds_for = first.holds_for.min(second.map_or(Duration::MAX, |found| found.holds_for));
        }
        Some(all)
    }
}

impl Question {
    fn new(name: &Name, record_type: RecordType) -> Option<Self> {
        let query = Query::query(name.clone(), record_type);
        // With an id by chance.
        let mut message = Message::query();
        message.metadata.recursion_desired = true;
        message.add_query(query.clone());
        Some(Self { id: message.id, query, packet: message.to_vec().ok()?, state: ExchangeState::Open })
    }

    fn is_open(&self) -> bool {
        matches!(self.state, ExchangeState::Open)
    }

    fn is_answered_by(&self, message: &Message) -> bool {
        // A server that could not read the question does not repeat it.
        let answers = matches!(message.response_code, ResponseCode::NoError | ResponseCode::NXDomain);
        let is_refused = message.queries.is_empty() && !answers;
        self.is_open()
            && message.id == self.id
            && message.message_type == MessageType::Response
            && message.op_code == OpCode::Query
            && (message.queries == [self.query.clone()] || is_refused)
    }
}

/// The addresses to which the question's name leads. A server that resolves has put all names on the way into its answer.
fn found(query: &Query, message: &Message) -> Found {
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
    Found { addresses, holds_for: Duration::from_secs(u64::from(seconds)) }
}

/// For how long nothing is there (RFC 2308).
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

    /// A genuine answer to the question for IPv4 addresses.
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
    fn an_answer_holds_as_long_as_all_that_led_to_it() {
        let mut exchange = exchange();
        let packet = answer(&exchange).to_vec().unwrap();
        assert_eq!(exchange.hear(&packet), Heard::Answer);
        assert!(exchange.has_open() && exchange.has_addresses());
        let found = Found { addresses: vec![[192, 0, 2, 1].into()], holds_for: Duration::from_secs(30) };
        assert_eq!(exchange.outcome(), Some(found));
        // It was answered.
        assert_eq!(exchange.hear(&packet), Heard::Nothing);
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
            exchange.hear(&bytes);
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
            exchange.hear(&packet);
            prop_assert!(exchange.outcome().is_none_or(|found| found.addresses.len() <= 1));
        }
    }
}
