//! Webhook secrets and signatures, checked against the reference library and published vectors.

use ring::rand::SystemRandom;
use signpost::domain::signature::{MalformedSecret, WebhookSecret, sign_hex, standard_signature};
use standardwebhooks::Webhook;

/// The published test vector of Standard Webhooks.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const TIMESTAMP: i64 = 1_614_265_330;
const BODY: &[u8] = br#"{"test": 2432232314}"#;
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

fn generated() -> WebhookSecret {
    WebhookSecret::generate(&SystemRandom::new()).unwrap()
}

#[test]
fn the_standard_signature_agrees_with_the_published_vector() {
    let secret = WebhookSecret::parse(SECRET).unwrap();
    assert_eq!(standard_signature(&[&secret], ID, TIMESTAMP, BODY), SIGNATURE);
}

#[test]
fn the_standard_signature_agrees_with_the_reference_library() {
    let secret = generated();
    let reference = Webhook::new(secret.reveal()).unwrap();
    for body in ["", "{}", r#"{"data":{"name":"größe","n":1.0}}"#] {
        assert_eq!(
            standard_signature(&[&secret], ID, TIMESTAMP, body.as_bytes()),
            reference.sign(ID, TIMESTAMP, body.as_bytes()).unwrap()
        );
    }
}

#[test]
fn in_a_grace_both_secrets_sign_the_new_one_first() {
    let (new, old) = (generated(), generated());
    let both = standard_signature(&[&new, &old], ID, TIMESTAMP, BODY);
    let one = |secret| standard_signature(&[secret], ID, TIMESTAMP, BODY);
    assert_eq!(both, format!("{} {}", one(&new), one(&old)));
}

#[test]
fn the_hex_signature_is_keyed_with_the_text_of_the_secret() {
    // printf '%s' '{"test": 2432232314}' | openssl dgst -sha256 -hmac "$SECRET"
    let secret = WebhookSecret::parse(SECRET).unwrap();
    assert_eq!(sign_hex(&secret, BODY), "sha256=80ec8a89ce3cd22133a1066caecb4d04fea7467657c8514d717ec42c38a5c94c");
}

#[test]
fn a_generated_secret_is_32_bytes_in_base64_and_is_read_back() {
    let secret = generated();
    assert_eq!(secret.reveal().len(), "whsec_".len() + 44);
    let again = WebhookSecret::parse(secret.reveal()).unwrap();
    assert_eq!(again.reveal(), secret.reveal());
    assert_eq!(sign_hex(&again, BODY), sign_hex(&secret, BODY));
    assert_ne!(generated().reveal(), secret.reveal());
}

#[test]
fn debug_does_not_show_the_secret() {
    let secret = generated();
    assert_eq!(format!("{secret:?}"), "WebhookSecret(…)");
}

#[test]
fn what_is_no_secret_is_refused() {
    for text in [
        "",
        "whsec_",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS*",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
        "whsec_c2hvcnQ=",
    ] {
        let refused = WebhookSecret::parse(text).map(|secret| secret.reveal().to_owned());
        assert_eq!(refused, Err(MalformedSecret), "{text:?}");
    }
}
