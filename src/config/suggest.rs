//! Suggests the name that was probably meant.

/// The candidate nearest to `name`, if it is near enough for a typing error: at most a quarter of its characters, and
/// at most three, differ.
pub(super) fn nearest(name: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    let allowed = (name.chars().count() / 4).clamp(1, 3);
    candidates
        .map(|candidate| (edit_distance(name, &candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The Levenshtein distance: how many characters to insert, delete or replace.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a_char) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b_char) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a_char != *b_char);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("listen", "lissten"), 1);
        assert_eq!(edit_distance("same", "same"), 0);
    }

    #[test]
    fn a_typing_error_has_a_suggestion_and_another_word_has_none() {
        let names = || ["http.listen", "admin.listen"].map(str::to_owned).into_iter();
        assert_eq!(nearest("http.lissten", names()).as_deref(), Some("http.listen"));
        assert_eq!(nearest("http.colour", names()), None);
    }
}
