//! Opens and reads images with code that the renderer does not share: `rqrr` reads, `resvg` draws.

use signpost::domain::qr::QrImage;

/// A decoded image, in RGBA.
pub(super) struct Picture {
    pub(super) side: usize,
    pub(super) pixels: Vec<[u8; 4]>,
}

impl Picture {
    pub(super) fn open(image: &QrImage) -> Self {
        match image.content_type {
            "image/png" => Self::open_png(&image.bytes),
            "image/svg+xml" => Self::open_svg(&image.bytes),
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

    pub(super) fn pixel(&self, x: usize, y: usize) -> [u8; 4] {
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

    /// Reads the code as scanners do: as it is, then with light and dark exchanged.
    pub(super) fn read(&self, background: u8) -> Option<String> {
        let grey = self.grey(background);
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
