use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll<T>(pending: &mut Pending<T>, bell: &Arc<Bell>) -> Poll<Result<T>> {
    Pin::new(pending).poll(&mut Context::from_waker(&Waker::from(Arc::clone(bell))))
}

#[test]
fn a_future_is_woken_once_by_its_answer() {
    let (promise, mut pending) = Pending::new();
    let bell = Arc::new(Bell::default());
    assert!(poll(&mut pending, &bell).is_pending() && poll(&mut pending, &bell).is_pending());
    assert!(!pending.is_answered());
    promise.answer(Ok(7));
    assert_eq!(bell.0.load(Ordering::SeqCst), 1);
    assert!(matches!(poll(&mut pending, &bell), Poll::Ready(Ok(7))));
    assert!(matches!(poll(&mut pending, &bell), Poll::Ready(Err(_))), "an answer is given once");
}

#[test]
fn the_last_waker_is_the_one_that_is_woken() {
    let (promise, mut pending) = Pending::<()>::new();
    let (first, second) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    assert!(poll(&mut pending, &first).is_pending() && poll(&mut pending, &second).is_pending());
    promise.answer(Ok(()));
    assert_eq!((first.0.load(Ordering::SeqCst), second.0.load(Ordering::SeqCst)), (0, 1));
}

#[test]
fn callbacks_get_the_answer_whether_it_is_there_or_not() {
    let told = Arc::new(StdMutex::new(Vec::new()));
    let tell = |number: i32| {
        let told = Arc::clone(&told);
        move |answer: Result<i32>| told.lock().unwrap().push((number, answer.unwrap()))
    };
    let (promise, pending) = Pending::new();
    pending.on_answer(tell(1));
    Pending::ready(Ok(20)).on_answer(tell(2));
    promise.answer(Ok(10));
    assert_eq!(*told.lock().unwrap(), [(2, 20), (1, 10)]);
}

#[test]
fn a_broken_promise_says_that_nothing_is_known() {
    let (promise, pending) = Pending::<()>::new();
    drop(promise);
    let error = pending.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("may have been done or not"), "{error}");

    let told = Arc::new(StdMutex::new(None));
    let (promise, pending) = Pending::<()>::new();
    let seen = Arc::clone(&told);
    pending.on_answer(move |answer| *seen.lock().unwrap() = Some(answer.is_err()));
    drop(promise);
    assert_eq!(*told.lock().unwrap(), Some(true));
}

#[test]
fn waiting_with_a_limit_hands_back_what_has_no_answer() {
    let (promise, pending) = Pending::new();
    let pending = pending.wait_timeout(Duration::from_millis(1)).unwrap_err();
    std::thread::scope(|scope| {
        scope.spawn(|| promise.answer(Ok(3)));
        assert_eq!(pending.wait().unwrap(), 3);
    });
    assert_eq!(Pending::ready(Ok(4)).wait_timeout(Duration::ZERO).unwrap().unwrap(), 4);
}
