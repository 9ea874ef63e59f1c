//! Only receivers with a valid certificate get a request.

use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;

/// A certificate authority, and a server with a certificate of it for `name`, valid until that year.
fn tls_server(name: &str, until_year: i32) -> (CertificateDer<'static>, TlsAcceptor) {
    let key_pair = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(until_year, 1, 1);
    let certificate = parameters.self_signed(&key_pair).unwrap().der().clone();
    let key = PrivateKeyDer::try_from(key_pair.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    (certificate, TlsAcceptor::from(Arc::new(config)))
}

/// Sends to a TLS receiver named `hook.test` that has a certificate for `certified`.
async fn send_over_tls(certified: &str, until_year: i32, trusted: bool) -> Result<u16, SendFailure> {
    let (certificate, tls) = tls_server(certified, until_year);
    let receiver = Receiver::start_tls(tls, Behaviour::Answer(OK.into())).await;
    let mut settings = settings();
    settings.lookup = ScriptedLookup::new([&[OPEN]]);
    settings.extra_roots = trusted.then_some(certificate).into_iter().collect();
    let url = format!("https://hook.test:{}/", receiver.address.port());
    let sent = sender(settings).send(request(&url)).await;
    assert_eq!(receiver.requests().len(), usize::from(sent.is_ok()));
    sent
}

#[tokio::test]
async fn a_trusted_certificate_for_the_name_is_accepted() {
    assert_eq!(send_over_tls("hook.test", 4096, true).await, Ok(200));
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_or_past_or_for_another_name_is_tls() {
    let untrusted = send_over_tls("hook.test", 4096, false).await.unwrap_err();
    assert_eq!(untrusted.to_string(), "tls");
    for (certified, until_year) in [("other.test", 4096), ("hook.test", 2000)] {
        let failure = send_over_tls(certified, until_year, true).await;
        assert_eq!(failure, Err(SendFailure::Tls), "{certified}, {until_year}");
    }
}

#[tokio::test]
async fn a_receiver_that_does_not_speak_tls_is_tls() {
    for reply in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let listener = TcpListener::bind((OPEN, 0)).await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let plain = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 4096];
            assert_ne!(stream.read(&mut hello).await.unwrap(), 0);
            stream.write_all(reply.as_bytes()).await.unwrap();
        });
        let failure = sender(settings()).send(request(&url)).await;
        assert_eq!(failure, Err(SendFailure::Tls), "{reply:?}");
        plain.await.unwrap();
    }
}
