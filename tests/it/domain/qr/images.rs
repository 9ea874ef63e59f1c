//! What is drawn, read back by an independent decoder.

use super::{FORMATS, LINK, default_options, draw, options};
use proptest::prelude::*;
use signpost::domain::qr::{Colour, Light, QrError, QrFormat, QrOptions, Scale, render};

/// Pairs of `dark` and `light` as a caller may write them.
const COLOURS: [(&str, &str); 18] = [
    ("#000000", "#FFFFFF"),
    ("000", "fff"),
    ("#1a237e", "#fff8e1"),
    ("#F00", "fff"),
    ("0,100,100,0", "0,0,0,0"),
    ("cmyk(100, 70, 0, 40)", "CMYK(0,5,12.5,0)"),
    // Cyan and amber on white, red on black, and greys: faint, yet above the least contrast.
    ("#0ff", "#fff"),
    ("#ffc107", "#fff"),
    ("#000", "#f00"),
    ("#bfbfbf", "#ffffff"),
    ("#000000", "#404040"),
    // Reversed.
    ("#fff", "#000"),
    ("#ffeb3b", "#212121"),
    ("#404040", "#000"),
    // On whatever is behind.
    ("#000", "transparent"),
    ("#fff", "Transparent"),
    ("#b71c1c", "TRANSPARENT"),
    ("cmyk(0,0,100,0)", "transparent"),
];

/// `length` characters that look like a link on a long base URL.
fn link_of(length: usize) -> String {
    let path = "abc/DEF-123_xyz.~%20".chars().cycle();
    "https://example.org/".chars().chain(path).take(length).collect()
}

#[test]
fn every_scale_and_format_reads_back() {
    for format in FORMATS {
        for scale in 1..=20 {
            draw(LINK, &options(format, scale, "#000", "#fff"));
        }
    }
}

#[test]
fn every_colour_pair_reads_back() {
    for format in FORMATS {
        for (dark, light) in COLOURS {
            for scale in [1, 4] {
                draw(LINK, &options(format, scale, dark, light));
            }
        }
    }
}

#[test]
fn lengths_from_20_to_300_read_back() {
    for length in (20..=300).step_by(7) {
        let format = FORMATS[length % 2];
        draw(&link_of(length), &options(format, 2, "#000", "#fff"));
    }
}

#[test]
fn non_ascii_content_reads_back() {
    for format in FORMATS {
        draw("https://bücher.example/日本語", &default_options(format));
    }
}

#[test]
fn content_up_to_the_largest_symbol_is_drawn_and_more_is_an_error() {
    for format in FORMATS {
        // A symbol of version 40 is 177 modules wide.
        let options = options(format, 2, "#000", "#fff");
        assert_eq!(draw(&"x".repeat(2331), &options).1.side, (177 + 8) * 2);
        let error = render(&"x".repeat(2332), &options).unwrap_err();
        assert!(matches!(error, QrError::Content(_)), "{error:?}");
    }
}

/// Modules in a row, by the version that holds `bytes` bytes at level M (ISO/IEC 18004, table 7).
fn modules_for(bytes: usize) -> usize {
    let capacities = [14, 26, 42, 62, 84, 106, 122, 152, 180, 213, 251, 287, 331];
    let version = 1 + capacities.iter().position(|capacity| bytes <= *capacity).unwrap();
    17 + 4 * version
}

#[test]
fn the_side_in_pixels_is_modules_plus_eight_times_scale() {
    for format in FORMATS {
        for scale in [1, 5, 7] {
            for bytes in [14, 15, 100, 300] {
                // Lower case, so that byte mode is the shortest.
                let content = "x".repeat(bytes);
                let (_, picture) = draw(&content, &options(format, scale, "#000", "#fff"));
                let expected = (modules_for(bytes) + 8) * usize::from(scale);
                assert_eq!(picture.side, expected, "{bytes} {scale}");
            }
        }
    }
}

#[test]
fn png_and_svg_of_the_same_options_show_the_same_pixels() {
    for (dark, light) in COLOURS {
        for scale in [1, 3, 5] {
            let [png, svg] = FORMATS.map(|format| draw(LINK, &options(format, scale, dark, light)).1);
            assert_eq!(png.side, svg.side);
            for (png, svg) in png.pixels.iter().zip(&svg.pixels) {
                assert!(png == svg || (png[3] == 0 && svg[3] == 0), "{png:?} {svg:?}");
            }
        }
    }
}

#[test]
fn modules_and_background_have_exactly_the_colours_asked_for() {
    for format in FORMATS {
        let (_, picture) = draw(LINK, &options(format, 4, "#1a237e", "0,40,60,0"));
        let (dark, light) = ([0x1a, 0x23, 0x7e, 255], [255, 153, 102, 255]);
        assert!(picture.pixels.iter().all(|p| *p == dark || *p == light));
        // The last pixel of the quiet zone, and the first of a finder pattern.
        assert_eq!(picture.pixel(15, 15), light);
        assert_eq!(picture.pixel(16, 16), dark);
        assert_eq!(picture.pixel(picture.side - 1, picture.side - 1), light);
    }
}

#[test]
fn a_transparent_background_has_no_opacity_and_the_modules_have_all() {
    for format in FORMATS {
        for dark in ["#000", "#fff", "#b71c1c"] {
            let (_, picture) = draw(LINK, &options(format, 4, dark, "transparent"));
            let Colour { red, green, blue } = Colour::parse(dark).unwrap();
            assert_eq!(picture.pixel(0, 0)[3], 0);
            assert_eq!(picture.pixel(16, 16), [red, green, blue, 255]);
        }
    }
}

#[test]
fn png_takes_one_bit_per_pixel_and_a_palette_only_where_needed() {
    use png::ColorType::{Grayscale, Indexed};
    // Dark, light, colour type, bytes of the palette, entries of the transparency.
    let cases = [
        ("#000", "#fff", Grayscale, None, None),
        ("#fff", "#000", Grayscale, None, None),
        ("#000", "transparent", Grayscale, None, Some(1)),
        ("#fff", "transparent", Grayscale, None, Some(1)),
        ("#000", "#fffffe", Indexed, Some(6), None),
        ("#f00", "#fff", Indexed, Some(6), None),
        ("#f00", "transparent", Indexed, Some(6), Some(1)),
    ];
    for (dark, light, color_type, palette, transparency) in cases {
        let (image, _) = draw(LINK, &options(QrFormat::Png, 5, dark, light));
        let reader = png::Decoder::new(std::io::Cursor::new(&image.bytes)).read_info().unwrap();
        let info = reader.info();
        assert_eq!(info.color_type, color_type, "{dark} {light}");
        assert_eq!(info.bit_depth, png::BitDepth::One);
        assert_eq!(info.palette.as_ref().map(|chunk| chunk.len()), palette);
        assert_eq!(info.trns.as_ref().map(|entries| entries.len()), transparency);
    }
}

#[test]
fn a_default_png_is_small() {
    let (image, _) = draw(LINK, &QrOptions::default());
    assert!(image.bytes.len() < 1500, "{} bytes", image.bytes.len());
}

#[test]
fn svg_is_one_crisp_path_on_a_background_that_may_be_left_out() {
    let text = |light| {
        let (image, _) = draw(LINK, &options(QrFormat::Svg, 5, "#0a0b0c", light));
        String::from_utf8(image.bytes).unwrap()
    };
    let opaque = text("#fff");
    // 22 bytes take version 2: 25 modules, 33 with the quiet zones.
    assert!(opaque.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"165\" height=\"165\" viewBox=\"0 0 33 33\" shape-rendering=\"crispEdges\">"));
    assert!(opaque.contains("<rect width=\"33\" height=\"33\" fill=\"#ffffff\"/>"));
    assert_eq!(opaque.matches("<path").count(), 1);
    assert!(opaque.contains("<path fill=\"#0a0b0c\""));

    let transparent = text("transparent");
    assert!(!transparent.contains("<rect"));
    assert_eq!(transparent.matches("<path").count(), 1);
}

#[test]
fn content_types_are_those_of_the_formats() {
    let content_type = |format| draw(LINK, &default_options(format)).0.content_type;
    assert_eq!(content_type(QrFormat::Png), "image/png");
    assert_eq!(content_type(QrFormat::Svg), "image/svg+xml");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn whatever_is_accepted_reads_back(
        svg: bool,
        scale in 1_u8..=5,
        dark: [u8; 3],
        light: [u8; 3],
        content in "https://[a-z]{1,20}\\.example/[A-Za-z0-9]{7}",
    ) {
        let [dark, light] = [dark, light].map(|[r, g, b]| Colour::new(r, g, b));
        let scale = Scale::parse(&scale.to_string()).unwrap();
        let format = if svg { QrFormat::Svg } else { QrFormat::Png };
        let options = QrOptions::new(format, scale, dark, Light::Opaque(light));
        prop_assume!(options.is_ok());
        draw(&content, &options.unwrap());
    }
}
