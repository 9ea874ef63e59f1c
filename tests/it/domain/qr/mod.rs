//! QR codes: what is accepted, what is drawn, and that it can be read back.

mod etag;
mod images;
mod options;
mod picture;

use signpost::domain::qr::{Colour, Light, QrFormat, QrOptions, Scale};

const LINK: &str = "https://sho.rt/aB3xY9z";
const FORMATS: [QrFormat; 2] = [QrFormat::Png, QrFormat::Svg];

fn options(format: QrFormat, scale: u8, dark: &str, light: &str) -> QrOptions {
    QrOptions::new(
        format,
        Scale::parse(&scale.to_string()).unwrap(),
        Colour::parse(dark).unwrap(),
        Light::parse(light).unwrap(),
    )
    .unwrap()
}

fn default_options(format: QrFormat) -> QrOptions {
    options(format, 5, "#000000", "#FFFFFF")
}
