//! Around actix's dispatcher, which serves what the fast path leaves to it: between it and the socket an
//! [`ErrorRewritingStream`], between it and the routes the [`EdgeService`](service::EdgeService).

mod bare_answer;
mod ending;
mod framing;
mod handlers;
pub mod service;
pub mod shared;
pub mod stream;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;

use actix_http::error::DispatchError;
use actix_service::Service;
use tokio::net::TcpStream;

use self::shared::SharedStream;
use self::stream::ErrorRewritingStream;

/// How a connection left the dispatcher.
pub enum Left {
    Closed,
    /// It asks for a short link again; `unread` is to be answered before what the socket still has.
    ForFastPath {
        stream: TcpStream,
        unread: Vec<u8>,
    },
}

/// Has the dispatcher serve a connection, until it is closed or asks for something that the fast path answers.
///
/// # Errors
/// When the dispatcher ended without closing the connection as it should.
pub async fn serve<D>(
    dispatcher: &D,
    stream: ErrorRewritingStream,
    peer: Option<SocketAddr>,
) -> Result<Left, DispatchError>
where
    D: Service<(SharedStream, Option<SocketAddr>), Response = (), Error = DispatchError>,
{
    let stream = SharedStream::new(stream);
    let ended = {
        let mut serving = pin!(dispatcher.call((stream.clone(), peer)));
        poll_fn(|context| match serving.as_mut().poll(context) {
            Poll::Pending if stream.wants_fast_path() => Poll::Ready(None),
            served => served.map(Some),
        })
        .await
        // Here the dispatcher is dropped. When the fast path is wanted, it has answered all that it was given, and waits.
    };
    match ended {
        Some(ended) => {
            poll_fn(|context| stream.poll_last_word(context)).await;
            ended.map(|()| Left::Closed)
        }
        None => Ok(stream.into_parts().map_or(Left::Closed, |(stream, unread)| Left::ForFastPath { stream, unread })),
    }
}
