//! The trace to which a request belongs, from its `traceparent` header (W3C Trace Context).

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The caller's span.
pub struct TraceParent(SpanContext);

impl TraceParent {
    /// Parses the value of a `traceparent` header; `None` if it is invalid. `tracestate` is ignored: it has vendor
    /// data of any length.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let mut fields = traceparent.split('-');
        let version = hex(fields.next()?, 2).filter(|version| *version != 0xff)?;
        let trace = TraceId::from(hex(fields.next()?, 32)?);
        let span = SpanId::from(u64::try_from(hex(fields.next()?, 16)?).ok()?);
        let flags = TraceFlags::new(u8::try_from(hex(fields.next()?, 2)?).ok()?);
        // Later versions may have more fields.
        if version == 0 && fields.next().is_some() {
            return None;
        }
        let context = SpanContext::new(trace, span, flags, true, TraceState::NONE);
        context.is_valid().then_some(Self(context))
    }

    pub(super) fn context(&self) -> SpanContext {
        self.0.clone()
    }

    pub(super) fn trace(&self) -> TraceId {
        self.0.trace_id()
    }

    pub(super) fn span(&self) -> SpanId {
        self.0.span_id()
    }

    pub(super) fn is_sampled(&self) -> bool {
        self.0.is_sampled()
    }
}

/// A hexadecimal number of exactly `count` digits.
fn hex(digits: &str, count: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_whole = digits.len() == count && digits.bytes().all(is_digit);
    is_whole.then(|| u128::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_traceparent_is_parsed_and_anything_else_is_none() {
        let read =
            |text: &str| TraceParent::parse(text).map(|caller| (caller.trace().to_string(), caller.is_sampled()));
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let of = |version: &str, flags: &str| format!("{version}-{trace}-00f067aa0ba902b7-{flags}");
        assert_eq!(read(&of("00", "01")), Some((trace.to_owned(), true)));
        assert_eq!(read(&of("00", "00")), Some((trace.to_owned(), false)));
        assert_eq!(read(&of("cc", "01-what-comes-later")), Some((trace.to_owned(), true)));
        for odd in [
            "",
            "00",
            "00-1-1-1",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            &of("ff", "01"),
            &of("00", "1"),
            &of("0", "01"),
        ] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
    }
}
