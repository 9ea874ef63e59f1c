use super::{LINK, default_options, draw, options};
use signpost::domain::qr::{QrFormat, etag};

#[test]
fn the_etag_is_quoted_and_changes_with_everything_that_changes_the_image() {
    let variants = [
        (LINK, default_options(QrFormat::Png)),
        ("https://sho.rt/aB3xY9Z", default_options(QrFormat::Png)),
        (LINK, default_options(QrFormat::Svg)),
        (LINK, options(QrFormat::Png, 6, "#000", "#fff")),
        (LINK, options(QrFormat::Png, 5, "#001", "#fff")),
        (LINK, options(QrFormat::Png, 5, "#000", "#ffe")),
        (LINK, options(QrFormat::Png, 5, "#fff", "#000")),
        (LINK, options(QrFormat::Png, 5, "#fff", "transparent")),
        (LINK, options(QrFormat::Png, 5, "#000", "transparent")),
    ];
    let tags: std::collections::HashSet<_> = variants.iter().map(|(content, options)| etag(content, options)).collect();
    assert_eq!(tags.len(), variants.len());
    for tag in tags {
        let hex = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap();
        assert!(hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit()), "{tag}");
    }
}

#[test]
fn the_etag_is_the_same_for_two_spellings_of_the_options() {
    assert_eq!(
        etag(LINK, &options(QrFormat::Png, 5, "#ff0000", "#FFF")),
        etag(LINK, &options(QrFormat::Png, 5, "cmyk(0,100,100,0)", "ffffff")),
    );
}

/// A new tag for the same image would make every client fetch it again: it changes only with the
/// renderer's version. And where the bytes change, that version has to.
#[test]
fn the_etag_and_the_bytes_change_only_together() {
    let fingerprint = |format| {
        let options = default_options(format);
        let bytes = draw(LINK, &options).0.bytes;
        // FNV-1a: all that is asked of it is to notice a change.
        let hash = bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        (etag(LINK, &options), format!("{hash:016x}"))
    };
    let golden = |tag: &str, hash: &str| (tag.to_owned(), hash.to_owned());
    assert_eq!(fingerprint(QrFormat::Png), golden("\"f0e42215673c661c\"", "6de3ada441e914b9"));
    assert_eq!(fingerprint(QrFormat::Svg), golden("\"23dbe45bee6c0b94\"", "aeb74d5227332b2c"));
}
