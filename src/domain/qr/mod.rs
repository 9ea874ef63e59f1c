//! QR codes of short links, as PNG or SVG.
//!
//! A symbol is encoded with error correction level M and a quiet zone of four modules
//! (ISO/IEC 18004), so an image is (modules + 8) × scale pixels wide and high in both formats.
//!
//! # Refused colours
//!
//! An image that scanners can't read is refused: `dark` and `light` must differ by at least [`MIN_LUMA_DIFFERENCE`]
//! (a quarter of the full range) in BT.601 luma, the grey that a scanner sees. By ISO/IEC 15415 a printed symbol
//! fails if its contrast is under a fifth, and decoders with an adaptive threshold fail near that; the rest is a
//! margin for small scales. Equal colours are one case of this.
//!
//! Two cases are accepted on purpose:
//!
//! * `dark` brighter than `light`: a reflectance-reversed symbol, which ISO/IEC 18004 allows and phones read.
//! * any `dark` on a transparent background: the page decides what is behind the image, and white modules on a dark
//!   page are common.

mod colour;
mod mask;
mod png;
mod svg;
mod symbol;

use ring::digest::{Context, SHA256};
use std::fmt::Write as _;
use symbol::Symbol;

pub use colour::{Colour, Light, MIN_LUMA_DIFFERENCE};

/// A part of every [`etag`]. Increase it with any change of the bytes for an unchanged request, including an update
/// of the encoders.
const RENDERER_VERSION: u8 = 1;

/// Image format of a QR code: query parameter `format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QrFormat {
    #[default]
    Png,
    Svg,
}

impl QrFormat {
    /// Parses `png` or `svg`, in lower case.
    pub fn parse(text: &str) -> Result<Self, QrOptionError> {
        match text {
            "png" => Ok(Self::Png),
            "svg" => Ok(Self::Svg),
            _ => Err(QrOptionError::Format),
        }
    }

    /// The media type of an image in this format.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Svg => "image/svg+xml",
        }
    }
}

/// Pixels per module, 1 to 20: query parameter `scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale(u8);

impl Scale {
    pub const MIN: Self = Self(1);
    pub const MAX: Self = Self(20);
    pub const DEFAULT: Self = Self(5);

    /// Parses an unsigned decimal integer from 1 to 20.
    pub fn parse(text: &str) -> Result<Self, QrOptionError> {
        // `u8::from_str` accepts a leading `+`, which is not allowed here.
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QrOptionError::Scale);
        }
        match text.parse() {
            Ok(pixels) if (Self::MIN.0..=Self::MAX.0).contains(&pixels) => Ok(Self(pixels)),
            _ => Err(QrOptionError::Scale),
        }
    }

    /// Pixels per module.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Scale {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How to draw a QR code. The contrast of its two colours is always sufficient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QrOptions {
    format: QrFormat,
    scale: Scale,
    dark: Colour,
    light: Light,
}

/// The query parameters of a QR code as sent; `None` if a parameter is missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct QrParameters<'a> {
    pub format: Option<&'a str>,
    pub scale: Option<&'a str>,
    pub dark: Option<&'a str>,
    pub light: Option<&'a str>,
}

impl QrOptions {
    /// Combines options.
    ///
    /// Fails with [`QrOptionError::Contrast`] if scanners could not distinguish `dark` from `light`.
    pub fn new(format: QrFormat, scale: Scale, dark: Colour, light: Light) -> Result<Self, QrOptionError> {
        if !light.contrasts_with(dark) {
            return Err(QrOptionError::Contrast);
        }
        Ok(Self { format, scale, dark, light })
    }

    /// Parses the query parameters. A missing one has its default.
    ///
    /// Fails with all errors, not only the first.
    pub fn parse(parameters: &QrParameters) -> Result<Self, Vec<QrOptionError>> {
        let format = parse_or_default(parameters.format, QrFormat::parse);
        let scale = parse_or_default(parameters.scale, Scale::parse);
        let dark = parse_or_default(parameters.dark, Colour::parse);
        let light = parse_or_default(parameters.light, Light::parse);
        // Two valid colours may lack contrast, which is reported together with an invalid `scale`.
        let clash = match (dark, light) {
            (Ok(dark), Ok(light)) if !light.contrasts_with(dark) => {
                let is_sent = parameters.light.is_some();
                Some(if is_sent { QrOptionError::Contrast } else { QrOptionError::ContrastWithDefault })
            }
            _ => None,
        };
        match (format, scale, dark, light, clash) {
            (Ok(format), Ok(scale), Ok(dark), Ok(light), None) => Ok(Self { format, scale, dark, light }),
            _ => Err([format.err(), scale.err(), dark.err(), light.err(), clash].into_iter().flatten().collect()),
        }
    }

    pub const fn format(&self) -> QrFormat {
        self.format
    }

    pub const fn scale(&self) -> Scale {
        self.scale
    }

    pub const fn dark(&self) -> Colour {
        self.dark
    }

    pub const fn light(&self) -> Light {
        self.light
    }
}

fn parse_or_default<T: Default>(
    text: Option<&str>,
    parse: fn(&str) -> Result<T, QrOptionError>,
) -> Result<T, QrOptionError> {
    text.map_or_else(|| Ok(T::default()), parse)
}

/// Why a query parameter of a QR code is refused. The text says what is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QrOptionError {
    #[error("must be `png` or `svg`")]
    Format,
    #[error("must be an integer from {} to {}", Scale::MIN.0, Scale::MAX.0)]
    Scale,
    #[error(
        "must be a hex colour (`#rgb` or `#rrggbb`; in a URL the `#` is left out or sent as `%23`) \
         or CMYK percentages from 0 to 100 (`cmyk(0,100,100,0)` or `0,100,100,0`)"
    )]
    Dark,
    #[error(
        "must be `transparent`, a hex colour (`#rgb` or `#rrggbb`; in a URL the `#` is left out or \
         sent as `%23`) or CMYK percentages from 0 to 100 (`cmyk(0,100,100,0)` or `0,100,100,0`)"
    )]
    Light,
    #[error(
        "is too close to `dark` for a scanner to tell them apart: \
         they must differ in brightness by at least 25 %"
    )]
    Contrast,
    #[error(
        "is too close to white, the default of `light`, for a scanner to tell them apart: \
         they must differ in brightness by at least 25 %"
    )]
    ContrastWithDefault,
}

impl QrOptionError {
    /// The refused query parameter.
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Scale => "scale",
            Self::Dark | Self::ContrastWithDefault => "dark",
            Self::Light | Self::Contrast => "light",
        }
    }
}

/// A rendered QR code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QrImage {
    pub content_type: &'static str,
    pub bytes: Vec<u8>,
}

/// Why a QR code could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum QrError {
    /// The content exceeds the largest symbol: 2,331 bytes at level M.
    #[error("the content does not fit into a QR code")]
    Content(#[from] qrcode::types::QrError),
    #[error("can't encode the PNG")]
    Png(#[from] ::png::EncodingError),
}

/// Renders `content` as a QR code. The same arguments always result in the same bytes.
pub fn render(content: &str, options: &QrOptions) -> Result<QrImage, QrError> {
    let symbol = Symbol::encode(content)?;
    let bytes = match options.format {
        QrFormat::Png => png::draw(&symbol, options)?,
        QrFormat::Svg => svg::draw(&symbol, options).into_bytes(),
    };
    Ok(QrImage { content_type: options.format.content_type(), bytes })
}

/// The strong `ETag` of what [`render`] returns for the same arguments, with quotes.
///
/// It is computed from the arguments, so a conditional request is answered without rendering. It is the same on all
/// nodes, in all releases with the same renderer, and for different notations of a colour.
pub fn etag(content: &str, options: &QrOptions) -> String {
    let dark = options.dark;
    let (opaque, light) = match options.light {
        Light::Opaque(colour) => (1, colour),
        Light::Transparent => (0, Colour::BLACK),
    };
    let mut digest = Context::new(&SHA256);
    // Everything except the content has a fixed length, so different inputs have different digests.
    digest.update(&[
        RENDERER_VERSION,
        match options.format {
            QrFormat::Png => 0,
            QrFormat::Svg => 1,
        },
        options.scale.get(),
        dark.red,
        dark.green,
        dark.blue,
        opaque,
        light.red,
        light.green,
        light.blue,
    ]);
    digest.update(content.as_bytes());

    let mut tag = String::with_capacity(18);
    tag.push('"');
    // 64 bits are enough to distinguish the few images of one URL.
    for byte in &digest.finish().as_ref()[..8] {
        let _ = write!(tag, "{byte:02x}"); // writing to a `String` never fails
    }
    tag.push('"');
    tag
}
