//! The two colours of a QR code, and the notations of colours that the API accepts.

use super::QrOptionError;
use std::fmt;

/// The minimum difference between the luma of the two colours, in thousandths of a level (of 255): a quarter of the
/// range from black to white.
pub const MIN_LUMA_DIFFERENCE: u32 = 63_750;

/// An opaque sRGB colour. The default is black.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Colour {
    pub red: u8,
    pub green: u8,
    pub blue: u8,
}

impl Colour {
    pub const BLACK: Self = Self::new(0, 0, 0);
    pub const WHITE: Self = Self::new(255, 255, 255);

    pub const fn new(red: u8, green: u8, blue: u8) -> Self {
        Self { red, green, blue }
    }

    /// Parses `#rgb` or `#rrggbb` (the `#` is optional), or CMYK percentages as `cmyk(c,m,y,k)` or `c,m,y,k`.
    ///
    /// Letters may be upper or lower case. A percentage is 0 to 100 with at most two decimals, and may have spaces
    /// around it. CMYK is converted to RGB without a colour profile: red = 255 × (1 − c) × (1 − k), and so on.
    pub fn parse(text: &str) -> Result<Self, QrOptionError> {
        parse_hex(text).or_else(|| parse_cmyk(text)).ok_or(QrOptionError::Dark)
    }

    /// Luma as in ITU-R BT.601, in thousandths of a level: 0 to 255,000.
    fn luma(self) -> u32 {
        299 * u32::from(self.red) + 587 * u32::from(self.green) + 114 * u32::from(self.blue)
    }
}

/// `#rrggbb`, in lower case.
impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.red, self.green, self.blue)
    }
}

/// The background behind the dark modules. The default is white.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Light {
    Opaque(Colour),
    Transparent,
}

impl Light {
    /// Parses the notations of [`Colour::parse`], or `transparent` in upper or lower case.
    pub fn parse(text: &str) -> Result<Self, QrOptionError> {
        if text.eq_ignore_ascii_case("transparent") {
            return Ok(Self::Transparent);
        }
        Colour::parse(text).map(Self::Opaque).map_err(|_| QrOptionError::Light)
    }

    /// Whether a scanner can distinguish `dark` modules from this background.
    pub(super) fn contrasts_with(self, dark: Colour) -> bool {
        match self {
            Self::Opaque(light) => dark.luma().abs_diff(light.luma()) >= MIN_LUMA_DIFFERENCE,
            Self::Transparent => true,
        }
    }
}

impl Default for Light {
    fn default() -> Self {
        Self::Opaque(Colour::WHITE)
    }
}

fn parse_hex(text: &str) -> Option<Colour> {
    let digits = text.strip_prefix('#').unwrap_or(text);
    // `from_str_radix` accepts a sign, which is not valid in a hex colour.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = u32::from_str_radix(digits, 16).ok()?.to_be_bytes();
    match (digits.len(), number) {
        // Each digit is doubled: `f` is `ff`, and 0xf × 17 = 0xff.
        (3, [_, _, r, gb]) => Some(Colour::new(r * 17, (gb >> 4) * 17, (gb & 0xf) * 17)),
        (6, [_, r, g, b]) => Some(Colour::new(r, g, b)),
        _ => None,
    }
}

fn parse_cmyk(text: &str) -> Option<Colour> {
    let mut inks = strip_cmyk_call(text)?.split(',').map(|ink| parse_percentage(ink.trim_matches(' ')));
    let mut next = || inks.next().flatten();
    let (cyan, magenta, yellow, black) = (next()?, next()?, next()?, next()?);
    if inks.next().is_some() {
        return None;
    }
    Some(Colour::new(channel(cyan, black)?, channel(magenta, black)?, channel(yellow, black)?))
}

/// The text between `cmyk(` and `)`, or `text` itself without `cmyk(…)`.
fn strip_cmyk_call(text: &str) -> Option<&str> {
    match text.split_at_checked("cmyk(".len()) {
        Some((name, rest)) if name.eq_ignore_ascii_case("cmyk(") => rest.strip_suffix(')'),
        _ => Some(text),
    }
}

/// 100 % in hundredths of a per cent, the unit of inks here.
const FULL: u32 = 100 * 100;

fn parse_percentage(text: &str) -> Option<u32> {
    let (whole, decimals) = match text.split_once('.') {
        Some((whole, decimals)) => (whole, decimals),
        None => (text, "0"),
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 2 {
        return None;
    }
    let tenth = if decimals.len() == 1 { 10 } else { 1 };
    let whole: u32 = whole.parse().ok().filter(|whole| *whole <= 100)?;
    let hundredths = whole * 100 + decimals.parse::<u32>().ok()? * tenth;
    (hundredths <= FULL).then_some(hundredths)
}

/// The share of light that two inks, in hundredths of a per cent, leave: 0 to 255, rounded.
fn channel(ink: u32, black: u32) -> Option<u8> {
    let left = u64::from(FULL - ink) * u64::from(FULL - black);
    let full = u64::from(FULL) * u64::from(FULL);
    u8::try_from((255 * left + full / 2) / full).ok()
}
