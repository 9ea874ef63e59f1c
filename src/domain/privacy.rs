//! Visitors who ask not to be tracked.

use super::bots::BotKind;
use super::device::Device;

/// What the headers of a request say about that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrivacySignals {
    /// `Sec-GPC`, Global Privacy Control.
    pub gpc: bool,
    /// `DNT`, Do Not Track.
    pub dnt: bool,
}

impl PrivacySignals {
    /// Whether a line of `Sec-GPC` asks for it. It has one value, `1`.
    pub fn in_gpc(value: &[u8]) -> bool {
        value.trim_ascii() == b"1"
    }

    /// Whether a line of `DNT` asks for it: it begins with `1`, and extensions may follow.
    pub fn in_dnt(value: &[u8]) -> bool {
        value.trim_ascii().starts_with(b"1")
    }
}

/// Which of the signals count (`privacy.respect`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RespectedSignals {
    #[default]
    None,
    Gpc,
    GpcAndDnt,
}

impl RespectedSignals {
    /// Whether nothing of a visitor with these signals may be written.
    pub fn forbid(self, signals: PrivacySignals) -> bool {
        match self {
            Self::None => false,
            Self::Gpc => signals.gpc,
            Self::GpcAndDnt => signals.gpc || signals.dnt,
        }
    }
}

/// All that is recorded of a visitor who wants no tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateVisitor {
    pub device: Device,
    pub bot: Option<BotKind>,
}

impl PrivateVisitor {
    /// As the journal has it.
    pub fn to_byte(self) -> u8 {
        self.device as u8 | BotKind::code(self.bot) << 4
    }

    /// `None` for bytes that no visitor has.
    pub fn from_byte(byte: u8) -> Option<Self> {
        let device = *Device::ALL.get(usize::from(byte & 0x0f))?;
        Some(Self { device, bot: BotKind::of_code(byte >> 4) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_from_their_headers() {
        for (value, gpc, dnt) in [
            ("1", true, true),
            (" 1 ", true, true),
            ("1x", false, true),
            ("0", false, false),
            ("", false, false),
            ("true", false, false),
            ("?1", false, false),
        ] {
            let value = value.as_bytes();
            assert_eq!((PrivacySignals::in_gpc(value), PrivacySignals::in_dnt(value)), (gpc, dnt), "{value:?}");
        }
    }

    #[test]
    fn signals_count_as_the_setting_says() {
        let signals = [(false, false), (true, false), (false, true), (true, true)];
        for (respected, expected) in [
            (RespectedSignals::None, [false, false, false, false]),
            (RespectedSignals::Gpc, [false, true, false, true]),
            (RespectedSignals::GpcAndDnt, [false, true, true, true]),
        ] {
            assert_eq!(signals.map(|(gpc, dnt)| respected.forbid(PrivacySignals { gpc, dnt })), expected);
        }
    }
}
