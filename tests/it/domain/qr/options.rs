//! The query parameters: what is accepted, and what is said of the rest.

use super::default_options;
use proptest::prelude::*;
use signpost::domain::qr::{Colour, Light, QrFormat, QrOptionError, QrOptions, QrParameters, Scale};

#[test]
fn left_out_parameters_have_the_documented_defaults() {
    let spelled_out =
        QrParameters { format: Some("png"), scale: Some("5"), dark: Some("#000000"), light: Some("#FFFFFF") };
    let defaults = QrOptions::parse(&QrParameters::default()).unwrap();
    assert_eq!(defaults, QrOptions::parse(&spelled_out).unwrap());
    assert_eq!(defaults, QrOptions::default());
    assert_eq!(defaults, default_options(QrFormat::Png));
}

#[test]
fn all_faults_are_told_at_once_each_with_its_parameter() {
    let faults = |parameters| {
        let faults = QrOptions::parse(&parameters).unwrap_err();
        faults.iter().map(|fault| fault.parameter()).collect::<Vec<_>>()
    };
    let all_bad = QrParameters { format: Some("gif"), scale: Some("0"), dark: Some(""), light: Some("white") };
    assert_eq!(faults(all_bad), ["format", "scale", "dark", "light"]);
    let bad_scale_and_same_colours = QrParameters { scale: Some("21"), dark: Some("fff"), ..QrParameters::default() };
    assert_eq!(faults(bad_scale_and_same_colours), ["scale", "dark"]);
}

#[test]
fn colours_that_no_scanner_tells_apart_are_refused() {
    for (dark, light) in [
        ("#000", "#000"),
        ("#fff", "#fff"),
        ("#f00", "0,100,100,0"),
        ("#000", "#3f3f3f"),
        ("#c0c0c0", "#fff"),
        ("#ff0", "#fff"),
        // Different hues, the same grey.
        ("#ff0000", "#008200"),
    ] {
        let clash =
            QrOptions::new(QrFormat::Png, Scale::DEFAULT, Colour::parse(dark).unwrap(), Light::parse(light).unwrap());
        assert_eq!(clash, Err(QrOptionError::Contrast), "{dark} {light}");
    }
    let detail = QrOptionError::Contrast.to_string();
    assert!(detail.contains("`dark`"), "{detail}");
    let parse = |dark, light| QrOptions::parse(&QrParameters { dark: Some(dark), light, ..QrParameters::default() });
    // The parameter that was sent.
    for (light, parameter) in [(Some("fff"), "light"), (None, "dark")] {
        let faults = parse("fff", light).unwrap_err();
        assert_eq!(faults.iter().map(|fault| fault.parameter()).collect::<Vec<_>>(), [parameter]);
    }
}

#[test]
fn format_is_png_or_svg() {
    assert_eq!(QrFormat::parse("png"), Ok(QrFormat::Png));
    assert_eq!(QrFormat::parse("svg"), Ok(QrFormat::Svg));
    for bad in ["", "PNG", "Svg", " png", "png ", "gif", "jpeg", "image/png", "png,svg"] {
        assert_eq!(QrFormat::parse(bad), Err(QrOptionError::Format), "{bad:?}");
    }
    assert_eq!(QrOptionError::Format.to_string(), "must be `png` or `svg`");
}

#[test]
fn scale_is_1_to_20() {
    for good in 1..=20 {
        assert_eq!(Scale::parse(&good.to_string()).unwrap().get(), good);
    }
    for bad in [
        "",
        "0",
        "21",
        "-1",
        "+5",
        " 5",
        "5 ",
        "5.0",
        "1e1",
        "0x5",
        "five",
        "٥",
        "255",
        "256",
        "261",
        "99999999999999999999",
    ] {
        assert_eq!(Scale::parse(bad), Err(QrOptionError::Scale), "{bad:?}");
    }
    assert_eq!(QrOptionError::Scale.to_string(), "must be an integer from 1 to 20");
}

#[test]
fn colours_are_hex_or_cmyk() {
    for (text, red, green, blue) in [
        ("#000000", 0, 0, 0),
        ("#FFFFFF", 255, 255, 255),
        ("ffffff", 255, 255, 255),
        ("#1a2B3c", 0x1a, 0x2b, 0x3c),
        ("#abc", 0xaa, 0xbb, 0xcc),
        ("0F8", 0, 255, 0x88),
        ("cmyk(0,100,100,0)", 255, 0, 0),
        ("0,100,100,0", 255, 0, 0),
        ("CMYK(100,0,0,0)", 0, 255, 255),
        ("cmyk( 0, 0 ,100, 0 )", 255, 255, 0),
        ("0, 0, 0, 100", 0, 0, 0),
        ("0,0,0,0", 255, 255, 255),
        ("100,100,100,100", 0, 0, 0),
        ("0,0,0,50", 128, 128, 128),
        ("20,40,60,10", 184, 138, 92),
        ("0,62.5,0.25,0", 255, 96, 254),
        ("000,050,099,000", 255, 128, 3),
    ] {
        let colour = Colour { red, green, blue };
        assert_eq!(Colour::parse(text), Ok(colour), "{text:?}");
        assert_eq!(Light::parse(text), Ok(Light::Opaque(colour)), "{text:?}");
    }
}

#[test]
fn other_colours_are_refused() {
    for bad in [
        "",
        "#",
        "##000",
        "#0",
        "#00",
        "#0000",
        "#00000",
        "#0000000",
        "#00000000",
        "#00g",
        "+ff",
        "-fff",
        "0x000",
        "#+ff",
        " #000",
        "#000 ",
        "black",
        "rgb(0,0,0)",
        "#é1",
        "日本",
        ",,,",
        "0,0,0",
        "0,0,0,0,0",
        "0,0,0,",
        ",0,0,0",
        "101,0,0,0",
        "100.01,0,0,0",
        "-1,0,0,0",
        "+1,0,0,0",
        "1e1,0,0,0",
        "NaN,0,0,0",
        "inf,0,0,0",
        "0%,0%,0%,0%",
        "0;0;0;0",
        "0 0 0 0",
        "1.,0,0,0",
        ".5,0,0,0",
        "0.001,0,0,0",
        "1.2.3,0,0,0",
        "99999999999,0,0,0",
        "0,\t0,0,0",
        "cmyk",
        "cmyk(",
        "cmyk()",
        "cmyk(0,0,0)",
        "cmyk(0,0,0,0",
        "0,0,0,0)",
        "cmyk (0,0,0,0)",
        "cmyk(0,0,0,0))",
        "cmyk(cmyk(0,0,0,0))",
        "cmyk(000)",
        "cmyka(0,0,0,0)",
        "#0,0,0,0",
    ] {
        assert_eq!(Colour::parse(bad), Err(QrOptionError::Dark), "{bad:?}");
        assert_eq!(Light::parse(bad), Err(QrOptionError::Light), "{bad:?}");
    }
    for (error, accepted) in [
        (QrOptionError::Dark, &["#rgb", "#rrggbb", "cmyk(0,100,100,0)"][..]),
        (QrOptionError::Light, &["transparent", "#rgb", "#rrggbb", "0,100,100,0"]),
    ] {
        let detail = error.to_string();
        assert!(accepted.iter().all(|form| detail.contains(form)), "{detail}");
    }
}

#[test]
fn only_the_background_may_be_transparent() {
    for text in ["transparent", "Transparent", "TRANSPARENT"] {
        assert_eq!(Light::parse(text), Ok(Light::Transparent));
        assert_eq!(Colour::parse(text), Err(QrOptionError::Dark));
    }
    assert_eq!(Light::parse(" transparent"), Err(QrOptionError::Light));
}

proptest! {
    #[test]
    fn parsers_take_any_text_without_a_panic(text in ".*", colourful in "[#0-9a-fA-F,.()cmyk +-]{0,20}") {
        for text in [&text, &colourful] {
            let _ = QrFormat::parse(text);
            let _ = Scale::parse(text);
            let _ = Colour::parse(text);
            let _ = Light::parse(text);
        }
    }

    #[test]
    fn a_colour_reads_back_from_its_hex_form(red: u8, green: u8, blue: u8) {
        let colour = Colour { red, green, blue };
        let shown = colour.to_string();
        prop_assert_eq!(Colour::parse(&shown), Ok(colour));
        prop_assert_eq!(Colour::parse(&shown[1..].to_uppercase()), Ok(colour));
    }

    #[test]
    fn cmyk_is_within_one_level_of_the_formula(inks in prop::array::uniform4(0_u16..=10_000)) {
        let [c, m, y, k] = inks.map(|ink| f64::from(ink) / 10_000.0);
        let [tc, tm, ty, tk] = inks.map(|ink| format!("{}.{:02}", ink / 100, ink % 100));
        let colour = Colour::parse(&format!("cmyk({tc},{tm},{ty},{tk})")).unwrap();
        for (channel, ink) in [(colour.red, c), (colour.green, m), (colour.blue, y)] {
            let exact = 255.0 * (1.0 - ink) * (1.0 - k);
            prop_assert!((f64::from(channel) - exact).abs() < 0.5 + 1e-6);
        }
    }

    #[test]
    fn scale_accepts_exactly_its_range(number: u32) {
        prop_assert_eq!(Scale::parse(&number.to_string()).is_ok(), (1..=20).contains(&number));
    }
}
