//! Pooled connections, and connections that fail.

use futures_util::future::join_all;
use tokio::net::TcpSocket;

use super::*;

#[tokio::test]
async fn a_connection_is_used_again() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let sender = sender(settings());
    for _ in 0..20 {
        assert_eq!(sender.send(request(&receiver.url())).await, Ok(200));
    }
    assert_eq!(receiver.requests().len(), 20);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_the_receiver_has_closed_costs_no_attempt() {
    let receiver = Receiver::start(Behaviour::AnswerAndClose(OK.into())).await;
    let sender = sender(settings());
    for sent in 1..=3 {
        assert_eq!(sender.send(request(&receiver.url())).await, Ok(200));
        receiver.connections_ended(sent).await;
    }
    assert_eq!(receiver.requests().len(), 3);
}

#[tokio::test]
async fn as_many_connections_as_configured_stay_open_without_a_request() {
    for (max_idle_per_host, max_idle) in [(2, 100), (100, 2)] {
        let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
        let mut settings = settings();
        (settings.max_idle_per_host, settings.max_idle) = (max_idle_per_host, max_idle);
        let sender = sender(settings);
        for connections in [5, 8] {
            let sent = join_all((0..5).map(|_| sender.send(request(&receiver.url())))).await;
            assert_eq!(sent, [Ok(200); 5]);
            assert_eq!(receiver.connections(), connections, "two of them are used again");
            receiver.connections_ended(connections - 2).await;
        }
    }
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_after_some_seconds() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let sender = sender(settings());
    assert_eq!(sender.send(request(&receiver.url())).await, Ok(200));
    assert_eq!(receiver.connections(), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(5)).await;
    tokio::time::resume();
    receiver.connections_ended(1).await;
    assert_eq!(sender.send(request(&receiver.url())).await, Ok(200));
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn origins_share_no_connection() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let mut settings = settings();
    settings.lookup = ScriptedLookup::new([&[OPEN]]);
    let sender = sender(settings);
    for url in [receiver.url(), receiver.url_of("a.example"), receiver.url_of("b.example")] {
        for _ in 0..2 {
            assert_eq!(sender.send(request(&url)).await, Ok(200));
        }
    }
    assert_eq!(receiver.connections(), 3);
}

#[tokio::test]
async fn a_failure_with_a_body_does_not_cost_the_connection() {
    let failing = "HTTP/1.1 500 Oh\r\ncontent-length: 4\r\n\r\noops";
    let receiver = Receiver::start(Behaviour::Answer(failing.into())).await;
    let sender = sender(settings());
    for _ in 0..3 {
        let sent = sender.send(request(&receiver.url())).await;
        assert_eq!(sent, Err(SendFailure::Status(500)));
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_body_of_64_kib_is_read_and_a_longer_one_costs_the_connection() {
    for (length, connections) in [(64 * 1024, 1), (64 * 1024 + 1, 2)] {
        let body = "x".repeat(length);
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        let receiver = Receiver::start(Behaviour::Answer(answer)).await;
        let mut settings = settings();
        // Only the bound on the size can end it.
        settings.drain_timeout = Duration::from_hours(1);
        let sender = sender(settings);
        for _ in 0..2 {
            assert_eq!(sender.send(request(&receiver.url())).await, Ok(200));
        }
        assert_eq!(receiver.connections(), connections, "{length} bytes");
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_off_and_its_head_still_counts() {
    let beginning = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let endless_body = Behaviour::Endless { beginning, part: "8\r\nendless!\r\n" };
    let receiver = Receiver::start(endless_body).await;
    let mut settings = settings();
    // Only the bound on the size can end it.
    settings.drain_timeout = Duration::from_hours(1);
    let sender = sender(settings);
    let sending = sender.send(request(&receiver.url()));
    let sent = tokio::time::timeout(Duration::from_secs(30), sending).await;
    assert_eq!(sent, Ok(Ok(200)));
}

/// Only the bound on the size can end it: the timeout is longer than this test may take.
#[tokio::test]
async fn an_endless_head_is_cut_off() {
    for part in ["x-endless: header\r\n", "endless"] {
        let receiver = Receiver::start(Behaviour::Endless { beginning: "HTTP/1.1 200 OK\r\nx: ", part }).await;
        let mut settings = settings();
        settings.timeout = Duration::from_hours(1);
        let sender = sender(settings);
        let sent = tokio::time::timeout(Duration::from_secs(30), sender.send(request(&receiver.url()))).await;
        assert_eq!(sent, Ok(Err(SendFailure::InvalidResponse)), "{part}");
    }
}

#[tokio::test]
async fn interim_answers_without_end_time_out() {
    let part = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let receiver = Receiver::start(Behaviour::Endless { beginning: "", part }).await;
    let mut settings = settings();
    settings.timeout = Duration::from_millis(200);
    assert_eq!(sender(settings).send(request(&receiver.url())).await, Err(SendFailure::TimedOut));
}

#[tokio::test]
async fn a_body_that_never_ends_arriving_is_given_up_and_its_head_still_counts() {
    let stalled = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
    let receiver = Receiver::start(Behaviour::Answer(stalled.into())).await;
    let mut settings = settings();
    settings.drain_timeout = Duration::from_millis(50);
    assert_eq!(sender(settings).send(request(&receiver.url())).await, Ok(200));
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_in_time_has_timed_out() {
    let receiver = Receiver::start(Behaviour::Silence).await;
    let trickling = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nx-slow: ".into())).await;
    for receiver in [receiver, trickling] {
        let mut settings = settings();
        settings.timeout = Duration::from_secs(1);
        let sender = sender(settings);
        for tries in 1.. {
            assert_eq!(sender.send(request(&receiver.url())).await, Err(SendFailure::TimedOut));
            assert!(receiver.requests().len() <= tries, "a try that nobody was told of");
            if !receiver.requests().is_empty() {
                break;
            }
            // The machine took that time before the request was sent.
            assert!(tries < 5, "no request is sent");
        }
    }
    assert_eq!(SendFailure::TimedOut.to_string(), "timed out");
    assert_eq!(SendFailure::TimedOut.response_status(), None);
}

#[tokio::test]
async fn the_time_for_looking_up_the_name_counts_too() {
    let mut settings = settings();
    settings.timeout = Duration::from_millis(50);
    settings.lookup = Arc::new(StuckLookup);
    let failure = sender(settings).send(request("http://example.com/")).await;
    assert_eq!(failure, Err(SendFailure::TimedOut));
}

#[tokio::test]
async fn a_closed_port_is_connection_refused() {
    // No process listens there, and no other process gets the port.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind((OPEN, 0).into()).unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    let failure = sender(settings()).send(request(&url)).await.unwrap_err();
    assert_eq!(failure.to_string(), "connection refused");
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_is_connection_reset() {
    for behaviour in
        [Behaviour::CloseUnanswered, Behaviour::Reset, Behaviour::AnswerAndClose("HTTP/1.1 200 OK\r\ncontent-".into())]
    {
        let failure = outcome(behaviour).await.unwrap_err();
        assert_eq!(failure.to_string(), "connection reset");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_an_invalid_response() {
    let garbage = Behaviour::AnswerAndClose("220 mail.example.com ESMTP\r\n\r\n".into());
    let failure = outcome(garbage).await.unwrap_err();
    assert_eq!(failure.to_string(), "invalid response");
}

#[tokio::test]
async fn a_name_without_an_address_is_dns() {
    let lookups: [Arc<dyn Lookup>; 2] = [Arc::new(FailingLookup), ScriptedLookup::new([&[]])];
    for lookup in lookups {
        let mut settings = settings();
        settings.lookup = lookup;
        let failure = sender(settings).send(request("http://example.com/")).await;
        assert_eq!(failure.unwrap_err().to_string(), "dns");
    }
}
