//! Work that is brought to its end, also if nobody waits for it any longer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that goes on in the background if it is dropped before its end: the client has closed its connection, or the
/// request has taken too long.
///
/// Until then it runs in the task of the request, so that its calls of the store belong to the request's trace.
pub struct ToTheEnd<T: Send + 'static> {
    work: Option<Work<T>>,
    is_awaited: Arc<AtomicBool>,
}

/// Whoever began the work: tells whether it still waits.
#[derive(Clone, Debug)]
pub struct Waiter(Arc<AtomicBool>);

impl Waiter {
    pub fn waits(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T: Send + 'static> ToTheEnd<T> {
    pub fn new<F: Future<Output = T> + Send + 'static>(work: impl FnOnce(Waiter) -> F) -> Self {
        let is_awaited = Arc::new(AtomicBool::new(true));
        Self { work: Some(Box::pin(work(Waiter(Arc::clone(&is_awaited))))), is_awaited }
    }
}

impl<T: Send + 'static> Future for ToTheEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // It is put back only if it is pending, so that nothing is left after a panic.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for ToTheEnd<T> {
    fn drop(&mut self) {
        self.is_awaited.store(false, Ordering::Release);
        if let (Some(work), Ok(runtime)) = (self.work.take(), Handle::try_current()) {
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
        let (begin, may_begin) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel();
        let mut work = ToTheEnd::new(|waiter| async move {
            assert!(waiter.waits());
            may_begin.await.unwrap();
            end.send(waiter.waits()).unwrap();
        });
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        begin.send(()).unwrap();
        assert_eq!(ended.await, Ok(false));
    }

    #[tokio::test]
    async fn work_has_its_result() {
        assert_eq!(ToTheEnd::new(|_| async { 7 }).await, 7);
    }
}
