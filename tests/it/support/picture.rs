//! Opens and reads images with code that the service does not share: `rqrr` reads, `resvg` draws.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// What a QR code says, as a scanner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    pub text: String,
    /// In pixels.
    pub side: usize,
}

/// Reads the code of a body that is an image; none where it is something else.
///
/// Every way by which tests get answers goes through here, so that none gets an image that nobody can read.
#[track_caller]
pub fn read_back(content_type: &str, body: &[u8]) -> Option<Code> {
    /// By their bytes: under load most images are the same.
    static READ: Mutex<Option<HashMap<Vec<u8>, Code>>> = Mutex::new(None);
    // An icon has no code.
    if !content_type.starts_with("image/") || content_type == "image/x-icon" {
        return None;
    }
    let known = || READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = known().get_or_insert_default().get(body) {
        return Some(code.clone());
    }
    let picture = Picture::open(content_type, body);
    let text = picture.read().unwrap_or_else(|| panic!("nobody can read this: {content_type}, {body:?}"));
    let code = Code { text, side: picture.side };
    known().get_or_insert_default().insert(body.to_vec(), code.clone());
    Some(code)
}

/// As [`read_back`], for the answer to a request for `path`: a code says the short URL of the link in it.
#[track_caller]
pub fn read_back_at(path: &str, content_type: &str, body: &[u8]) -> Option<Code> {
    // The console's icon has none.
    if path.starts_with("/console/") {
        return None;
    }
    let code = read_back(content_type, body)?;
    let link = path.split('/').nth(1).unwrap();
    assert!(code.text.starts_with("http") && code.text.ends_with(&format!("/{link}")), "{code:?} at {path}");
    Some(code)
}

/// A decoded image, in RGBA.
pub struct Picture {
    pub side: usize,
    pub pixels: Vec<[u8; 4]>,
}

impl Picture {
    pub fn open(content_type: &str, bytes: &[u8]) -> Self {
        match content_type {
            "image/png" => Self::open_png(bytes),
            "image/svg+xml" => Self::open_svg(bytes),
            other => panic!("unknown content type {other}"),
        }
    }

    fn open_png(bytes: &[u8]) -> Self {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::ALPHA);
        let mut reader = decoder.read_info().unwrap();
        let mut samples = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut samples).unwrap();
        assert_eq!(info.width, info.height);
        let pixels = match info.color_type {
            png::ColorType::GrayscaleAlpha => {
                let (pixels, _) = samples.as_chunks();
                pixels.iter().map(|&[v, alpha]| [v, v, v, alpha]).collect()
            }
            png::ColorType::Rgba => samples.as_chunks().0.to_vec(),
            other => panic!("not expanded: {other:?}"),
        };
        Self { side: info.width as usize, pixels }
    }

    fn open_svg(bytes: &[u8]) -> Self {
        use resvg::{tiny_skia, usvg};
        let tree = usvg::Tree::from_data(bytes, &usvg::Options::default()).unwrap();
        let size = tree.size().to_int_size();
        assert_eq!(size.width(), size.height());
        let mut canvas = tiny_skia::Pixmap::new(size.width(), size.height()).unwrap();
        resvg::render(&tree, tiny_skia::Transform::identity(), &mut canvas.as_mut());
        let demultiply = |pixel: &tiny_skia::PremultipliedColorU8| {
            let colour = pixel.demultiply();
            [colour.red(), colour.green(), colour.blue(), colour.alpha()]
        };
        Self { side: size.width() as usize, pixels: canvas.pixels().iter().map(demultiply).collect() }
    }

    pub fn pixel(&self, x: usize, y: usize) -> [u8; 4] {
        self.pixels[y * self.side + x]
    }

    /// What a camera sees with `background` behind the image.
    fn grey(&self, background: u8) -> Vec<u8> {
        let over = |[red, green, blue, alpha]: [u8; 4]| {
            let luma = (299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue)) / 1000;
            let alpha = u32::from(alpha);
            u8::try_from((luma * alpha + u32::from(background) * (255 - alpha)) / 255).unwrap()
        };
        self.pixels.iter().copied().map(over).collect()
    }

    /// White behind what is transparent, unless the modules would vanish there.
    fn background(&self) -> u8 {
        let module = self.pixels.iter().find(|pixel| pixel[3] == 255);
        if module.is_some_and(|&[red, green, _, _]| red.min(green) > 0xf0) { 0 } else { 255 }
    }

    /// Reads the code as scanners do: as it is, then with light and dark exchanged.
    pub fn read(&self) -> Option<String> {
        let grey = self.grey(self.background());
        let reversed: Vec<u8> = grey.iter().map(|level| 255 - level).collect();
        decode(&grey, self.side).or_else(|| decode(&reversed, self.side))
    }
}

fn decode(grey: &[u8], side: usize) -> Option<String> {
    let mut image = rqrr::PreparedImage::prepare_from_greyscale(side, side, |x, y| grey[y * side + x]);
    let grids = image.detect_grids();
    let (meta, content) = grids.first()?.decode().ok()?;
    assert_eq!(meta.ecc_level, 0, "level M is coded as 0");
    Some(content)
}
