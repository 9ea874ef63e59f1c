//! Encodes text as the modules of a QR symbol.

use super::mask;
use qrcode::canvas::Canvas;
use qrcode::types::QrError as EncodeError;
use qrcode::{EcLevel, bits, ec};

/// Width of the empty border on each side, in modules (ISO/IEC 18004 requires four).
pub(super) const QUIET_ZONE: u8 = 4;

/// The modules of a QR symbol, without its quiet zone.
pub(super) struct Symbol {
    /// Modules in a row and in a column: at most 177, so that the sum with the quiet zones fits.
    side: u8,
    /// Row by row; `true` is dark.
    modules: Vec<bool>,
}

impl Symbol {
    /// Encodes with error correction level M, in the smallest version that fits `content`.
    pub(super) fn encode(content: &str) -> Result<Self, EncodeError> {
        const LEVEL: EcLevel = EcLevel::M;
        let bits = bits::encode_auto(content.as_bytes(), LEVEL)?;
        let version = bits.version();
        let (data, error_correction) = ec::construct_codewords(&bits.into_bytes(), version, LEVEL)?;
        let mut canvas = Canvas::new(version, LEVEL);
        canvas.draw_all_functional_patterns();
        canvas.draw_data(&data, &error_correction);

        let side = u8::try_from(version.width()).map_err(|_| EncodeError::InvalidVersion)?;
        Ok(Self { side, modules: mask::apply_best(&canvas, usize::from(side)) })
    }

    /// Modules in a row of the image, including the quiet zones.
    pub(super) fn image_side(&self) -> u8 {
        self.side + 2 * QUIET_ZONE
    }

    /// The rows from top to bottom, each from left to right; `true` is dark.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[bool]> {
        self.modules.chunks_exact(usize::from(self.side))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qrcode::{Color, QrCode};

    #[test]
    fn a_symbol_equals_the_one_with_the_mask_that_the_encoder_chooses() {
        // Lengths up to version 15, in byte, alphanumeric and numeric mode, and 100 typical links.
        let texts = ["aB3-/é", "HTTPS://GO.EXAMPLE/", "3141592653"]
            .into_iter()
            .flat_map(|unit| (1..400).step_by(19).map(|n| unit.chars().cycle().take(n).collect()))
            .chain((0..100).map(|n| format!("https://sho.rt/{:07}", n * 98_765)));
        for text in texts {
            let text: String = text;
            let expected = QrCode::with_error_correction_level(&text, EcLevel::M).unwrap();
            let expected: Vec<bool> = expected.to_colors().iter().map(|colour| *colour == Color::Dark).collect();
            assert!(Symbol::encode(&text).unwrap().modules == expected, "{text}");
        }
    }
}
