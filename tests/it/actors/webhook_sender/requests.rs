//! The requests that are sent, and the responses that are a success.

use super::*;

#[tokio::test]
async fn the_request_is_a_signed_post() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let sent = sender(settings()).send(request(&receiver.url())).await;
    assert_eq!(sent, Ok(200));

    let requests = receiver.requests();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert!(request.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with(&format!("\r\n\r\n{BODY}")), "{request}");
    let timestamp = TIMESTAMP.to_string();
    let hex = sign_hex(&secret(), BODY.as_bytes());
    let reference = standardwebhooks::Webhook::new(SECRET).unwrap();
    let standard = reference.sign(WEBHOOK_ID, TIMESTAMP, BODY.as_bytes()).unwrap();
    for (name, value) in [
        ("host", receiver.address.to_string().as_str()),
        ("content-type", "application/json"),
        ("user-agent", concat!("signpost/", env!("CARGO_PKG_VERSION"))),
        ("x-webhook-signature", &hex),
        ("webhook-id", WEBHOOK_ID),
        ("webhook-timestamp", &timestamp),
        ("webhook-signature", &standard),
    ] {
        assert_eq!(header(request, name), Some(value), "{name}");
    }
    for name in ["accept-encoding", "cookie", "referer", "authorization"] {
        assert_eq!(header(request, name), None, "{name}");
    }
}

#[tokio::test]
async fn in_a_grace_the_hex_signature_is_the_new_secrets_and_both_sign_the_standard_one() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let destination = destination(&receiver.url());
    let previous = WebhookSecret::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap();
    let body = Bytes::from_static(BODY.as_bytes());
    let body = SignedBody::sign(body, &secret()).unwrap();
    let request = SignedRequest::sign(destination, body, WEBHOOK_ID, TIMESTAMP, &secret(), Some(&previous)).unwrap();
    assert_eq!(sender(settings()).send(request).await, Ok(200));

    let request = &receiver.requests()[0];
    let hex = sign_hex(&secret(), BODY.as_bytes());
    assert_eq!(header(request, "x-webhook-signature"), Some(hex.as_str()));
    let standard: Vec<_> = [SECRET, previous.reveal()]
        .map(|text| standardwebhooks::Webhook::new(text).unwrap())
        .iter()
        .map(|key| key.sign(WEBHOOK_ID, TIMESTAMP, BODY.as_bytes()).unwrap())
        .collect();
    assert_eq!(header(request, "webhook-signature"), Some(standard.join(" ").as_str()));
}

#[tokio::test]
async fn an_id_that_no_header_can_carry_is_refused() {
    let destination = destination("http://example.com/");
    let body = SignedBody::sign(Bytes::new(), &secret()).unwrap();
    let signed = SignedRequest::sign(destination, body, "a\r\nb", 0, &secret(), None);
    assert!(signed.is_err());
}

#[tokio::test]
async fn every_2xx_is_a_success_and_no_other_status_is() {
    assert_eq!(outcome(answer("202 Accepted")).await, Ok(202));
    let no_content = Behaviour::Answer("HTTP/1.1 204 No Content\r\n\r\n".into());
    assert_eq!(outcome(no_content).await, Ok(204));
    for (line, status) in [("304 Not Modified", 304), ("400 Bad Request", 400), ("410 Gone", 410), ("500 Oh", 500)] {
        let failure = outcome(answer(line)).await.unwrap_err();
        assert_eq!(failure.response_status(), Some(status));
        assert_eq!(failure.to_string(), format!("http {status}"));
    }
}

#[tokio::test]
async fn cookies_are_not_kept() {
    let cookie = "HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::start(Behaviour::Answer(cookie.into())).await;
    let sender = sender(settings());
    for _ in 0..2 {
        assert_eq!(sender.send(request(&receiver.url())).await, Ok(200));
    }
    assert_eq!(header(&receiver.requests()[1], "cookie"), None);
}
