//! The id of a request: the client's, if it is well-formed, else a new one.

use std::collections::HashSet;
use std::thread;

use actix_http::header::{HeaderMap, HeaderValue};
use signpost::http::request_id::{X_REQUEST_ID, new_request_id, request_id};

fn with(sent: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(X_REQUEST_ID, HeaderValue::from_bytes(sent).unwrap());
    headers
}

fn is_allowed(id: &HeaderValue) -> bool {
    let text = id.to_str().unwrap();
    (16..=22).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[test]
fn a_well_formed_id_is_kept() {
    for sent in ["a", "7", "-", "A-z.0_9", "550e8400-e29b-41d4-a716-446655440000", &"x".repeat(64)] {
        assert_eq!(request_id(&with(sent.as_bytes())), sent);
    }
}

#[test]
fn any_other_is_replaced() {
    let evil: [&[u8]; 10] =
        [b"", b" ", b"a b", b"a,b", b"a/b", b"\"a\"", b"<script>", b"a\tb", "ä".as_bytes(), &[b'x'; 65]];
    for sent in evil {
        let id = request_id(&with(sent));
        assert_ne!(id.as_bytes(), sent);
        assert!(is_allowed(&id), "{id:?}");
    }
    assert!(is_allowed(&request_id(&HeaderMap::new())));
}

#[test]
fn new_ids_are_unique_over_threads() {
    let ids: Vec<HeaderValue> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..5_000).map(|_| new_request_id()).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(is_allowed));
    let different: HashSet<&[u8]> = ids.iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(different.len(), 20_000);
}

/// The permuted counter: the last seven digits.
fn number_of(id: &HeaderValue) -> i64 {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let text = id.to_str().unwrap();
    text[text.len() - 7..]
        .chars()
        .fold(0, |number, digit| number * 64 + i64::try_from(DIGITS.find(digit).unwrap()).unwrap())
}

#[test]
fn ids_do_not_tell_how_many_were_made() {
    let numbers: Vec<i64> = (0..1_000).map(|_| number_of(&new_request_id())).collect();
    let steps: HashSet<i64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(steps.len() > 990, "only {} different steps", steps.len());
    let rising = numbers.windows(2).filter(|pair| pair[1] > pair[0]).count();
    assert!((300..700).contains(&rising), "{rising} of 999 steps go up");
}
