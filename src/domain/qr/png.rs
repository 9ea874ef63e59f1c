//! Writes a symbol as PNG, always with one bit per pixel.

use super::symbol::{QUIET_ZONE, Symbol};
use super::{Colour, Light, QrOptions};
use png::{BitDepth, ColorType, Compression, Encoder, EncodingError, Filter};

/// How the two colours are encoded in one bit per pixel.
struct PixelFormat {
    color_type: ColorType,
    /// The sample of a light pixel; a dark pixel has the other value.
    light_sample: u8,
    palette: Option<[u8; 6]>,
    /// Content of the `tRNS` chunk.
    transparency: Option<Vec<u8>>,
}

impl PixelFormat {
    /// Greyscale if black and white are enough, because it needs no palette; else indexed.
    fn of(options: &QrOptions) -> Self {
        match (options.dark, options.light) {
            (Colour::BLACK, Light::Opaque(Colour::WHITE)) => Self::greyscale(1, false),
            (Colour::WHITE, Light::Opaque(Colour::BLACK)) => Self::greyscale(0, false),
            (Colour::BLACK, Light::Transparent) => Self::greyscale(1, true),
            (Colour::WHITE, Light::Transparent) => Self::greyscale(0, true),
            (dark, Light::Opaque(light)) => Self::indexed(dark, light, false),
            (dark, Light::Transparent) => Self::indexed(dark, Colour::WHITE, true),
        }
    }

    fn greyscale(light_sample: u8, transparent: bool) -> Self {
        Self {
            color_type: ColorType::Grayscale,
            light_sample,
            palette: None,
            // The one transparent sample, in two bytes.
            transparency: transparent.then(|| vec![0, light_sample]),
        }
    }

    fn indexed(dark: Colour, light: Colour, transparent: bool) -> Self {
        Self {
            color_type: ColorType::Indexed,
            // First in the palette, so that `tRNS` can end after it.
            light_sample: 0,
            palette: Some([light.red, light.green, light.blue, dark.red, dark.green, dark.blue]),
            transparency: transparent.then(|| vec![0]),
        }
    }
}

pub(super) fn draw(symbol: &Symbol, options: &QrOptions) -> Result<Vec<u8>, EncodingError> {
    let format = PixelFormat::of(options);
    let scale = options.scale.get();
    let side = u32::from(symbol.image_side()) * u32::from(scale);

    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, side, side);
    encoder.set_color(format.color_type);
    encoder.set_depth(BitDepth::One);
    encoder.set_compression(Compression::Fast);
    // Most rows repeat the row above, which `Up` turns into zeros.
    encoder.set_filter(Filter::Up);
    if let Some(palette) = format.palette {
        encoder.set_palette(palette.to_vec());
    }
    if let Some(transparency) = format.transparency {
        encoder.set_trns(transparency);
    }
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels(symbol, scale, format.light_sample))?;
    writer.finish()?;
    Ok(bytes)
}

/// The image's samples, eight in a byte. Each row begins a new byte.
fn pixels(symbol: &Symbol, scale: u8, light_sample: u8) -> Vec<u8> {
    let scale = usize::from(scale);
    let quiet_zone = usize::from(QUIET_ZONE) * scale;
    let side = usize::from(symbol.image_side()) * scale;
    let light_row = vec![if light_sample == 1 { 0xff } else { 0x00 }; side.div_ceil(8)];

    let mut pixels = Vec::with_capacity(light_row.len() * side);
    for _ in 0..quiet_zone {
        pixels.extend_from_slice(&light_row);
    }
    for modules in symbol.rows() {
        let mut row = light_row.clone();
        for (column, dark) in modules.iter().enumerate() {
            if *dark {
                let left = quiet_zone + column * scale;
                for x in left..left + scale {
                    row[x / 8] ^= 0x80 >> (x % 8);
                }
            }
        }
        for _ in 0..scale {
            pixels.extend_from_slice(&row);
        }
    }
    for _ in 0..quiet_zone {
        pixels.extend_from_slice(&light_row);
    }
    pixels
}
