//! QR codes: what is accepted, what is drawn, and that it can be read back.

mod etag;
mod images;
mod options;

use signpost::domain::qr::{Colour, Light, QrFormat, QrImage, QrOptions, Scale};

use crate::support::picture::Picture;

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

/// Draws a code and has it read back: every image of these tests comes from here.
#[track_caller]
fn draw(content: &str, options: &QrOptions) -> (QrImage, Picture) {
    let image = signpost::domain::qr::render(content, options).unwrap();
    let picture = Picture::open(image.content_type, &image.bytes);
    assert_eq!(picture.read().as_deref(), Some(content), "{options:?}");
    (image, picture)
}
