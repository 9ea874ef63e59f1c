//! Answers that are sent while they are made.

use std::error::Error;

use actix_web::body::None as NoBody;
use actix_web::http::{ConnectionType, Version};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use bytes::Bytes;
use futures_util::Stream;

/// An answer whose body is sent while it is made, and whose length nobody knows before.
pub fn streamed<E: Error + 'static>(
    request: &HttpRequest,
    mut response: HttpResponseBuilder,
    parts: impl Stream<Item = Result<Bytes, E>> + 'static,
) -> HttpResponse {
    let mut response = response.streaming(parts);
    if request.version() == Version::HTTP_10 {
        // Such a client knows no chunks (RFC 9112, section 6.1): the body ends with the connection.
        response.head_mut().no_chunking(true);
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    response
}

/// The answer to `HEAD`: without the length of a body that is never made (RFC 9110, section 8.6).
pub fn head_of_streamed(mut response: HttpResponseBuilder) -> HttpResponse {
    response.body(NoBody::new())
}
