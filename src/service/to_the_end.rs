//! Work that is brought to its end, also if nobody waits for it any longer.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that goes on in the background if it is dropped before its end: the client has closed its connection, or the
/// request has taken too long.
///
/// Until then it runs in the task of the request, so that its calls of the store belong to the request's trace.
pub struct ToTheEnd<T: Send + 'static>(Option<Work<T>>);

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T: Send + 'static> ToTheEnd<T> {
    pub fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for ToTheEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // It is put back only if it is pending, so that nothing is left after a panic.
        let Some(mut work) = self.0.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.0 = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for ToTheEnd<T> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            // Nobody waits for it.
            drop(runtime.spawn(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_that_is_dropped_goes_on() {
        let ((begin, begun), (end, ended)) = (oneshot::channel::<()>(), oneshot::channel());
        let mut work = ToTheEnd::new(async move {
            begun.await.unwrap();
            end.send(7).unwrap();
        });
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        begin.send(()).unwrap();
        assert_eq!(ended.await, Ok(7));
    }

    #[tokio::test]
    async fn work_has_its_result() {
        assert_eq!(ToTheEnd::new(async { 7 }).await, 7);
    }
}
