//! Models of what threads do to a queue at the same time, for `ci/model.sh`: each runs under every order of the threads' accesses (of
//! three threads, those with few preemptions), and with every value that a load may see by the memory model.
//!
//! Threads do what [`SendQueue`](crate::SendQueue), [`Cq`](crate::Cq) and [`Qp`](crate::Qp) do, with the same parts of `sq.rs` and `rq.rs`. The card's
//! side is here: a doorbell that keeps the last index written to it, and entries that must not be written while the card may read them.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::Mutex;
use loom::thread;
use verbena_abi::queue::QpState;

use crate::cq::Completion;
use crate::device::Bar;
use crate::rq::{RqShared, Signal};
use crate::sq::{Poster, SqShared, WriteFlags};

const PLAIN: WriteFlags = WriteFlags::NONE;
const DEFER: WriteFlags = WriteFlags::DEFER;
const SILENT: WriteFlags = WriteFlags::SILENT_SUCCESS;

/// The context of a request.
const fn context(index: u64) -> u64 {
    100 + index
}

/// A send queue with the card behind it.
struct Queue {
    shared: Arc<SqShared>,
    card: Card,
}

/// What of the card is seen by the driver.
struct Card {
    /// Index of the last doorbell.
    doorbell: AtomicU64,
    /// Requests as they lie in the ring. loom finds a write of one while a read of it may be under way.
    entries: Vec<Entry>,
    /// The progress record.
    progress: AtomicU64,
}

/// A request as it lies in the ring.
struct Entry(UnsafeCell<u64>);

// SAFETY: loom ends a model in which two accesses are not in order.
unsafe impl Sync for Entry {}

impl Bar for Card {
    fn read32(&self, _: u32) -> u32 {
        0
    }

    fn write32(&self, _: u32, value: u32) {
        // A register takes its writes in one order, so this is a read-modify-write; it orders nothing else, which is up to the driver's fence.
        self.doorbell.swap(value.into(), Ordering::Relaxed);
    }
}

impl Queue {
    /// Returns a queue in RTS.
    fn new(depth: u32) -> Arc<Self> {
        let shared = Arc::new(SqShared::new(3, 0, depth));
        assert!(shared.advance(QpState::Rts));
        let entries = (0..depth.next_power_of_two()).map(|_| Entry(UnsafeCell::new(0))).collect();
        Arc::new(Self { shared, card: Card { doorbell: AtomicU64::new(0), entries, progress: AtomicU64::new(0) } })
    }

    fn poster(&self) -> Poster {
        Poster::take(&self.shared).expect("nobody else posts")
    }

    /// Posts as [`crate::SendQueue::write`] does, and returns whether it could.
    fn post(&self, poster: &mut Poster, index: u64, flags: WriteFlags) -> bool {
        let slot = match self.shared.state() {
            QpState::Rts => poster.free_slot(|| self.progress()),
            _ => None,
        };
        let Some(slot) = slot else {
            poster.ring(|| &self.card);
            return false;
        };
        // SAFETY: nobody else uses the pointer at this time, which is what loom checks.
        self.card.entries[slot].0.with_mut(|entry| unsafe { *entry = context(index) });
        poster.publish(slot, context(index), flags, || &self.card);
        true
    }

    /// Reads the progress record as the driver does.
    fn progress(&self) -> Option<u16> {
        Some(self.card.progress.load(Ordering::Relaxed) as u16)
    }

    fn flush(&self) {
        self.shared.enter_error(&self.card);
    }

    /// Returns the index that the card has by now.
    fn doorbell(&self) -> u64 {
        self.card.doorbell.fetch_add(0, Ordering::Acquire)
    }

    /// Has the card execute requests from `first` to where its doorbell is, and polls their completions. Returns where it ended.
    fn execute(&self, first: u64, is_silent: impl Fn(u64) -> bool) -> u64 {
        let end = self.doorbell();
        for index in first..end {
            let slot = index as usize % self.card.entries.len();
            // SAFETY: nobody writes at this time, which is what loom checks.
            let entry = self.card.entries[slot].0.with(|entry| unsafe { *entry });
            assert_eq!(entry, context(index), "what the card reads is what was posted");
            self.card.progress.store(index + 1, Ordering::Release);
            if !is_silent(index) {
                assert_eq!(self.shared.complete(index as u16), Some(context(index)), "a completion finds its request");
                self.shared.release();
            }
        }
        end
    }
}

/// Explores a model. Of more than two threads, every order with up to three switches where a thread could have gone on.
fn explore(threads: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = (threads > 2).then_some(3);
    builder.check(model);
}

/// Runs a model of a poster with these requests and of `flushes` other threads that put the queue in error.
fn posts_against_flushes(requests: &'static [WriteFlags], flushes: usize) {
    explore(1 + flushes, move || {
        let queue = Queue::new(4);
        let threads: Vec<_> = (0..flushes).map(|_| queue.clone()).map(|queue| thread::spawn(move || queue.flush())).collect();
        let mut poster = queue.poster();
        let posted = (0..).zip(requests).filter(|(index, flags)| queue.post(&mut poster, *index, **flags)).count();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(queue.doorbell(), posted as u64, "the last doorbell is the one for all that were posted");
    });
}

#[test]
fn a_deferred_post_is_rung_for_by_itself_or_by_the_flush() {
    posts_against_flushes(&[DEFER], 1);
}

#[test]
fn a_plain_post_behind_a_deferred_one_is_not_taken_back_by_the_doorbell_of_a_flush() {
    posts_against_flushes(&[DEFER, PLAIN], 1);
}

#[test]
fn deferred_posts_behind_any_other_are_rung_for() {
    posts_against_flushes(&[PLAIN, DEFER], 1);
    posts_against_flushes(&[DEFER, DEFER], 1);
    posts_against_flushes(&[DEFER, PLAIN, DEFER], 1);
}

#[test]
fn two_flushes_ring_for_the_same_posts() {
    posts_against_flushes(&[DEFER, PLAIN], 2);
    posts_against_flushes(&[DEFER, DEFER], 2);
}

/// Runs a model of a poster of three requests in a ring of two, and of a card whose completions are polled.
fn posts_against_reaping(requests: [WriteFlags; 3]) {
    explore(2, move || {
        let queue = Queue::new(2);
        let is_silent = move |index: u64| requests[index as usize].contains(SILENT);
        let other = queue.clone();
        let reaper = thread::spawn(move || {
            let end = other.execute(0, is_silent);
            other.execute(end, is_silent)
        });
        let mut poster = queue.poster();
        let mut posted = 0;
        for flags in requests {
            posted += u64::from(queue.post(&mut poster, posted, flags));
        }
        assert!(posted >= 2, "there is room for two");
        poster.ring(|| &queue.card);
        let end = reaper.join().unwrap();
        assert_eq!(queue.execute(end, is_silent), posted);
        assert_eq!(poster.free_slots(|| queue.progress()), 2, "no slot is lost");
        assert!(!queue.shared.is_busy(), "and everybody knows");
    });
}

#[test]
fn a_slot_is_used_again_when_its_completion_was_polled_and_not_before() {
    posts_against_reaping([PLAIN, PLAIN, PLAIN]);
}

#[test]
fn a_slot_of_a_silent_request_is_used_again_when_the_card_has_read_it() {
    posts_against_reaping([SILENT, SILENT, PLAIN]);
    posts_against_reaping([SILENT, PLAIN, PLAIN]);
}

#[test]
fn a_signalled_request_between_silent_ones_keeps_its_context_until_it_is_polled() {
    posts_against_reaping([PLAIN, SILENT, SILENT]);
}

#[test]
fn deferred_requests_are_reaped_as_others_are() {
    posts_against_reaping([WriteFlags(DEFER.0 | SILENT.0), PLAIN, DEFER]);
}

/// Runs a model of a poster of two requests, of a flush, and of a card whose completions are polled, all at once.
fn posts_against_flush_and_reaping(requests: [WriteFlags; 2]) {
    explore(3, move || {
        let queue = Queue::new(2);
        let is_silent = move |index: u64| requests[index as usize].contains(SILENT);
        let (flushed, other) = (queue.clone(), queue.clone());
        let flusher = thread::spawn(move || flushed.flush());
        let reaper = thread::spawn(move || other.execute(0, is_silent));
        let mut poster = queue.poster();
        let posted = (0..).zip(requests).filter(|(index, flags)| queue.post(&mut poster, *index, *flags)).count();
        flusher.join().unwrap();
        let end = reaper.join().unwrap();
        assert_eq!(queue.execute(end, is_silent), posted as u64, "all that were posted reach the card");
        assert_eq!(poster.free_slots(|| queue.progress()), 2, "no slot is lost");
        assert!(!queue.shared.is_busy(), "and everybody knows");
    });
}

#[test]
fn what_is_posted_into_a_flush_is_shown_to_the_card_and_reaped() {
    posts_against_flush_and_reaping([PLAIN, PLAIN]);
    posts_against_flush_and_reaping([DEFER, PLAIN]);
    posts_against_flush_and_reaping([SILENT, DEFER]);
}

/// Runs a model of a poster, of a drain (what a disconnect and the close of a connector wait for), and of a card that reads the memory of what it is
/// shown until its QP is in ERROR.
fn posts_against_drain(requests: &'static [WriteFlags]) {
    /// What the card knows of the QP; a command finds it between two of its steps.
    #[derive(Default)]
    struct OnCard {
        /// Requests that are ended.
        consumer: u64,
        is_in_error: bool,
        reads_memory: bool,
    }
    explore(3, move || {
        let (queue, card) = (Queue::new(2), Arc::new(Mutex::new(OnCard::default())));
        let (shown, qp) = (queue.clone(), card.clone());
        let worker = thread::spawn(move || {
            for _ in 0..2 {
                {
                    let mut qp = qp.lock().unwrap();
                    if shown.doorbell() == qp.consumer {
                        continue;
                    }
                    qp.reads_memory = !qp.is_in_error;
                }
                let mut qp = qp.lock().unwrap();
                qp.reads_memory = false;
                qp.consumer += 1;
            }
        });
        let (drained, qp) = (queue.clone(), card.clone());
        let drainer = thread::spawn(move || {
            // What `Qp::flush` does, and then each query of `Qp::wait_for_drain`.
            drained.flush();
            qp.lock().unwrap().is_in_error = true;
            for _ in 0..2 {
                let (consumer, reads_memory) = {
                    let qp = qp.lock().unwrap();
                    (qp.consumer, qp.reads_memory)
                };
                if consumer == drained.shared.producer() {
                    assert!(!reads_memory, "the drain is over, and the card reads the memory of a request");
                    return;
                }
            }
        });
        let mut poster = queue.poster();
        let posted = (0..).zip(requests).filter(|(index, flags)| queue.post(&mut poster, *index, **flags)).count();
        worker.join().unwrap();
        drainer.join().unwrap();
        assert_eq!(queue.doorbell(), posted as u64, "what was posted meanwhile is shown to the card, which flushes it");
    });
}

#[test]
fn no_memory_of_a_request_is_read_behind_a_drain_that_met_its_post() {
    posts_against_drain(&[PLAIN]);
    posts_against_drain(&[DEFER, PLAIN]);
    posts_against_drain(&[PLAIN, DEFER]);
}

/// Runs a model of a post into the slot of a silent request that is done, and of a poller that ends what a card that is gone has left.
#[test]
fn a_late_post_on_a_card_that_is_gone_is_ended_once_and_what_was_done_is_not() {
    explore(2, || {
        let queue = Queue::new(1);
        let mut poster = queue.poster();
        assert!(queue.post(&mut poster, 0, SILENT));
        queue.card.progress.store(1, Ordering::Release);
        let gone = queue.clone();
        let take = move || {
            let lost = gone.shared.take_lost(gone.progress()).map(|completion| completion.context);
            gone.shared.release();
            lost
        };
        let poller = thread::spawn(move || {
            let lost = take();
            (take, lost)
        });
        assert!(queue.post(&mut poster, 1, PLAIN), "the record says that the slot is free");
        let (take, lost) = poller.join().unwrap();
        let lost: Vec<_> = lost.into_iter().chain(take()).chain(take()).collect();
        assert_eq!(lost, [context(1)]);
    });
}

/// Runs a model of a send queue that is given back with a deferred request, of another thread that takes it, and perhaps of a flush.
fn close_against_the_next_poster(is_flushed: bool) {
    explore(3, move || {
        let queue = Queue::new(4);
        let mut first = queue.poster();
        let (next, flusher) = (queue.clone(), queue.clone());
        let next = thread::spawn(move || {
            let Some(mut poster) = Poster::take(&next.shared) else { return 0 };
            u64::from(is_flushed && next.post(&mut poster, 1, PLAIN))
        });
        let flusher = is_flushed.then(|| thread::spawn(move || flusher.flush()));
        let posted = u64::from(queue.post(&mut first, 0, DEFER));
        first.give_back(|| &queue.card);
        let more = next.join().unwrap();
        flusher.into_iter().for_each(|flusher| flusher.join().unwrap());
        assert_eq!(queue.doorbell(), posted + more);
    });
}

#[test]
fn a_send_queue_that_is_closed_rings_for_its_deferred_requests_and_the_next_one_goes_on_behind_them() {
    close_against_the_next_poster(false);
    close_against_the_next_poster(true);
}

/// Runs a model of a poster of two receives, of a thread that stops the queue, and of one that polls `batch` completions at once.
fn receives_against_stop_and_poll(depth: u32, batch: usize) {
    explore(3, move || {
        let (shared, signal) = (Arc::new(RqShared::new(3, 0, depth)), Arc::new(Signal::default()));
        let (stopped, told) = (shared.clone(), signal.clone());
        let stopper = thread::spawn(move || {
            if stopped.stop() {
                told.raise();
            }
        });
        let (mut receivers, polled) = (vec![shared.clone()], signal.clone());
        let mut poll = move || {
            let mut out = vec![Completion::default(); batch];
            let count = if polled.is_raised() { polled.take_flushed(&mut receivers, &mut out) } else { 0 };
            out.into_iter().take(count).map(|completion| completion.context).collect::<Vec<_>>()
        };
        let poller = thread::spawn(move || {
            let given = poll();
            (poll, given)
        });
        let mut accepted = Vec::new();
        for context in [context(0), context(1)] {
            if let Ok(is_stopped) = shared.post(context) {
                accepted.push(context);
                if is_stopped {
                    signal.raise();
                }
            }
        }
        stopper.join().unwrap();
        let (mut poll, mut given) = poller.join().unwrap();
        // Only what the CQ is told of is polled.
        loop {
            let more = poll();
            if more.is_empty() {
                break;
            }
            given.extend(more);
        }
        assert_eq!(given, accepted, "each once, in order");
    });
}

#[test]
fn each_receive_that_was_accepted_is_given_once_in_order_and_the_cq_is_told() {
    receives_against_stop_and_poll(2, 2);
    // The signal stays up when there may be more than fits.
    receives_against_stop_and_poll(2, 1);
    // The place of a receive is used again.
    receives_against_stop_and_poll(1, 1);
}

/// Runs a model of a receive that a stopped queue has flushed, of an arm, of a poll if there is one, and of looks for CQs that have to call back.
///
/// The conditions under the lock are those of `Cq::arm`, `Cq::poll` and `Cq::wake`.
fn flushed_receive_against_arm_and_wake(is_polled: bool) {
    explore(3, move || {
        #[derive(Default)]
        struct Reader {
            is_armed: bool,
            is_due: bool,
        }
        let (flushed, wakes, reader) = (Arc::new(Signal::default()), Arc::new(Signal::default()), Arc::new(Mutex::new(Reader::default())));
        let (cq, adapter) = (flushed.clone(), wakes.clone());
        let poster = thread::spawn(move || {
            cq.raise();
            adapter.raise();
        });
        let (cq, adapter, state) = (flushed.clone(), wakes.clone(), reader.clone());
        let wake = move || {
            if !adapter.lower() {
                return 0;
            }
            let mut reader = state.lock().unwrap();
            let is_due = reader.is_due || (reader.is_armed && cq.is_raised());
            let calls = u32::from(is_due && reader.is_armed);
            if is_due {
                *reader = Reader::default();
            }
            calls
        };
        let looker = thread::spawn(move || {
            let calls = wake();
            (wake, calls)
        });
        {
            let mut reader = reader.lock().unwrap();
            reader.is_armed = true;
            if flushed.is_raised() {
                reader.is_due = true;
                wakes.raise();
            }
        }
        // A poll takes the receive before its notification is called.
        if is_polled {
            let mut reader = reader.lock().unwrap();
            if flushed.lower() && reader.is_armed {
                reader.is_due = true;
                wakes.raise();
            }
        }
        poster.join().unwrap();
        let (wake, calls) = looker.join().unwrap();
        assert_eq!(calls + wake(), 1, "one call for one arm");
    });
}

#[test]
fn an_arm_is_called_back_for_a_flushed_receive_whatever_comes_first() {
    flushed_receive_against_arm_and_wake(false);
    flushed_receive_against_arm_and_wake(true);
}
