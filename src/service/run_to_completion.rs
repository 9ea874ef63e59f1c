//! Work that is brought to its end, also if nobody waits for it any longer.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use crate::caller::{CallerGuard, CallerState};

/// A future that goes on in the background if it is dropped before its end: the client has closed its connection, or the
/// request has taken too long.
///
/// Until then it runs in the task of the request, so that its calls of the store belong to the request's trace.
pub struct RunToCompletion<T: Send + 'static> {
    work: Option<Work<T>>,
    /// `None` once this was dropped: the caller waits no longer.
    caller: Option<CallerGuard>,
}

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T: Send + 'static> RunToCompletion<T> {
    pub fn new<F: Future<Output = T> + Send + 'static>(work: impl FnOnce(CallerState) -> F) -> Self {
        let (guard, caller) = CallerGuard::new();
        Self { work: Some(Box::pin(work(caller))), caller: Some(guard) }
    }

    /// The same, but of its writes the embedded store begins none once the caller waits no longer.
    pub fn writes_while_waiting(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self::new(|caller| async move { caller.writes_while_waiting(work).await })
    }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
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

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        self.caller = None;
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
        let mut work = RunToCompletion::new(|waiter| async move {
            assert!(waiter.is_waiting());
            may_begin.await.unwrap();
            end.send(waiter.is_waiting()).unwrap();
        });
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        begin.send(()).unwrap();
        assert_eq!(ended.await, Ok(false));
    }

    #[tokio::test]
    async fn work_has_its_result() {
        assert_eq!(RunToCompletion::new(|_| async { 7 }).await, 7);
    }
}
