//! Arming: what satisfies which arm, and when the callback is called. A test for each cell of the tables in `docs/ndk.md`.
//!
//! Entries that follow from a request are the card's; receives are flushed by the driver, which then satisfies the arm by itself.
//! A comment that begins with `choice:` says what this provider does where NDKPI leaves it open.

use std::cell::RefCell;
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbena_abi::regs::Counter;
use verbena_host::ndk::NtStatus;
use verbena_host::Device;
use verbena_ndk::abi::*;
use verbena_ndk::open::VerbenaProcessEvents;
use verbena_tests::ndk::*;
use verbena_tests::{close, ndk};

const OVERFLOW: NTSTATUS = nt(NtStatus::BUFFER_OVERFLOW);
const NOT_SUPPORTED: NTSTATUS = nt(NtStatus::NOT_SUPPORTED);
const NO_ACCESS: NTSTATUS = nt(NtStatus::ACCESS_VIOLATION);

const ERRORS: u32 = NDK_CQ_NOTIFY_ERRORS;
const ANY: u32 = NDK_CQ_NOTIFY_ANY;
const SOLICITED: u32 = NDK_CQ_NOTIFY_SOLICITED;
const KINDS: [u32; 3] = [ERRORS, ANY, SOLICITED];

/// A notification that there are completions.
const TOLD: Call = Call::Notified(SUCCESS);
/// A notification that the CQ is dead.
const DEAD: Call = Call::Notified(OVERFLOW);

// An arm that meets one that is not satisfied yet.

macro_rules! rearmed {
    ($($name:ident: $first:ident, $second:ident => $in_force:ident;)*) => {$(
        #[test]
        fn $name() {
            rearm($first, $second, $in_force);
        }
    )*};
}

rearmed! {
    any_then_any_is_any: ANY, ANY => ANY;
    any_then_errors_is_any: ANY, ERRORS => ANY;
    any_then_solicited_is_any: ANY, SOLICITED => ANY;
    errors_then_any_is_any: ERRORS, ANY => ANY;
    errors_then_errors_is_errors: ERRORS, ERRORS => ERRORS;
    errors_then_solicited_is_solicited: ERRORS, SOLICITED => SOLICITED;
    solicited_then_any_is_any: SOLICITED, ANY => ANY;
    solicited_then_errors_is_solicited: SOLICITED, ERRORS => SOLICITED;
    solicited_then_solicited_is_solicited: SOLICITED, SOLICITED => SOLICITED;
}

/// Arms twice and looks at what the arm that is in force takes: a success, a failure, an overrun. It is one arm, however often
/// it was armed.
fn rearm(first: u32, second: u32, in_force: u32) {
    let mut rig = Rig::new(2);
    rig.arm(first);
    rig.arm(second);
    rig.success();
    rig.bench.settle();
    let mut expected = if in_force == ANY { vec![TOLD] } else { vec![] };
    assert_eq!(rig.notified(), expected, "after a success");
    rig.failure();
    rig.bench.settle();
    if in_force == SOLICITED {
        expected.push(TOLD);
    }
    assert_eq!(rig.notified(), expected, "after a failure");
    // Both places are taken. The QP has failed, so it is another one whose entry finds none.
    rig.renew();
    rig.success();
    rig.bench.settle();
    if in_force == ERRORS {
        expected.push(DEAD);
    }
    assert_eq!(rig.notified(), expected, "after an overrun");
    rig.close();
}

// What satisfies an arm.

macro_rules! satisfied {
    ($($name:ident: $kind:ident, $event:ident => $expected:expr;)*) => {$(
        #[test]
        fn $name() {
            let rig = Rig::new(2);
            rig.arm($kind);
            rig.bench.settle();
            assert_eq!(rig.notified(), [], "by nothing");
            rig.$event();
            assert_eq!(rig.notified(), [], "on the stack of a posting call");
            rig.bench.settle();
            let expected: &[Call] = &$expected;
            assert_eq!(rig.notified(), expected);
            rig.close();
        }
    )*};
}

satisfied! {
    any_is_satisfied_by_a_success: ANY, success => [TOLD];
    any_is_satisfied_by_a_failure: ANY, failure => [TOLD];
    any_is_satisfied_by_a_cancelled_request: ANY, cancelled => [TOLD];
    any_is_satisfied_by_a_flushed_receive: ANY, flushed_receive => [TOLD];
    solicited_is_not_satisfied_by_a_success: SOLICITED, success => [];
    solicited_is_satisfied_by_a_failure: SOLICITED, failure => [TOLD];
    solicited_is_satisfied_by_a_cancelled_request: SOLICITED, cancelled => [TOLD];
    solicited_is_satisfied_by_a_flushed_receive: SOLICITED, flushed_receive => [TOLD];
    solicited_is_satisfied_by_an_overrun: SOLICITED, overrun => [DEAD];
    errors_is_not_satisfied_by_a_success: ERRORS, success => [];
    errors_is_not_satisfied_by_a_failure: ERRORS, failure => [];
    errors_is_not_satisfied_by_a_cancelled_request: ERRORS, cancelled => [];
    errors_is_not_satisfied_by_a_flushed_receive: ERRORS, flushed_receive => [];
    errors_is_satisfied_by_an_overrun: ERRORS, overrun => [DEAD];
}

#[test]
fn any_is_satisfied_by_an_overrun() {
    // The entries in front of it satisfy an arm of ANY as well, so it is the next arm that meets the overrun.
    let rig = Rig::with_hook(2, |rig, status| {
        if status == SUCCESS {
            rig.arm(ANY);
        }
    });
    rig.arm(ANY);
    rig.overrun();
    rig.bench.settle();
    let calls = rig.seen.borrow();
    assert_eq!(calls.iter().filter(|status| **status == OVERFLOW).count(), 1, "{calls:x?}");
    assert_eq!(calls.last(), Some(&OVERFLOW), "and nothing behind it");
    drop(calls);
    rig.close();
}

#[test]
fn nothing_is_notified_before_the_first_arm() {
    for event in [Rig::success, Rig::failure, Rig::cancelled, Rig::flushed_receive, Rig::overrun] {
        let rig = Rig::new(2);
        event(&rig);
        rig.bench.settle();
        assert_eq!(rig.notified(), []);
        rig.close();
    }
}

#[test]
fn an_arm_is_good_for_one_call() {
    let rig = Rig::new(16);
    rig.arm(ANY);
    for _ in 0..4 {
        rig.success();
        rig.bench.settle();
    }
    assert_eq!(rig.notified(), [TOLD]);
    assert_eq!(rig.bench.take(rig.cq, 16).len(), 4);
    rig.arm(ANY);
    rig.success();
    rig.success();
    rig.bench.settle();
    assert_eq!(rig.notified(), [TOLD; 2]);
    rig.close();
}

#[test]
fn a_solicited_arm_outlives_successes() {
    let rig = Rig::new(16);
    rig.arm(SOLICITED);
    for _ in 0..3 {
        rig.success();
        rig.bench.settle();
        assert_eq!(rig.bench.take(rig.cq, 2).len(), 1);
    }
    assert_eq!(rig.notified(), []);
    rig.failure();
    rig.bench.settle();
    assert_eq!(rig.notified(), [TOLD]);
    rig.close();
}

#[test]
fn a_kind_that_there_is_not_is_as_good_as_any() {
    // choice: an arm can't fail, and a call too many is better than none.
    for kind in [3, u32::MAX] {
        let rig = Rig::new(16);
        rig.arm(kind);
        rig.success();
        rig.bench.settle();
        assert_eq!(rig.notified(), [TOLD]);
        rig.close();
    }
}

// Arms that find entries.

macro_rules! finds {
    ($($name:ident: $kind:ident, $event:ident, polled $polled:literal => $calls:literal;)*) => {$(
        #[test]
        fn $name() {
            let rig = Rig::new(2);
            rig.$event();
            rig.bench.settle();
            if $polled {
                // Of a batch that is not filled, so that the queue has said that it is empty.
                assert_eq!(rig.bench.take(rig.cq, 4).len(), 1);
            }
            rig.arm($kind);
            assert_eq!(rig.notified(), [], "on the stack of NdkArmCq");
            rig.bench.settle();
            assert_eq!(rig.notified(), [TOLD; 2][..$calls]);
            rig.close();
        }
    )*};
}

finds! {
    any_finds_a_success: ANY, success, polled false => 1;
    any_finds_a_failure: ANY, failure, polled false => 1;
    any_finds_a_cancelled_request: ANY, cancelled, polled false => 1;
    any_finds_a_flushed_receive: ANY, flushed_receive, polled false => 1;
    solicited_passes_a_success_by: SOLICITED, success, polled false => 0;
    solicited_finds_a_failure: SOLICITED, failure, polled false => 1;
    solicited_finds_a_cancelled_request: SOLICITED, cancelled, polled false => 1;
    solicited_finds_a_flushed_receive: SOLICITED, flushed_receive, polled false => 1;
    errors_passes_a_success_by: ERRORS, success, polled false => 0;
    errors_passes_a_failure_by: ERRORS, failure, polled false => 0;
    errors_passes_a_cancelled_request_by: ERRORS, cancelled, polled false => 0;
    errors_passes_a_flushed_receive_by: ERRORS, flushed_receive, polled false => 0;
    any_does_not_find_a_success_that_was_polled: ANY, success, polled true => 0;
    any_does_not_find_a_failure_that_was_polled: ANY, failure, polled true => 0;
    any_does_not_find_a_flushed_receive_that_was_polled: ANY, flushed_receive, polled true => 0;
    solicited_does_not_find_a_failure_that_was_polled: SOLICITED, failure, polled true => 0;
    solicited_does_not_find_a_flushed_receive_that_was_polled: SOLICITED, flushed_receive, polled true => 0;
}

#[test]
fn any_finds_an_entry_that_was_there_at_the_last_call_already() {
    // choice: NDKPI allows both. Whoever does not poll everything is called again.
    let rig = Rig::new(16);
    rig.arm(ANY);
    rig.success();
    rig.bench.settle();
    rig.arm(ANY);
    rig.bench.settle();
    assert_eq!(rig.notified(), [TOLD; 2]);
    rig.close();
}

#[test]
fn solicited_finds_a_failure_behind_successes_that_were_polled() {
    let rig = Rig::new(16);
    rig.success();
    rig.success();
    rig.failure();
    rig.bench.settle();
    assert_eq!(rig.bench.take(rig.cq, 2).iter().map(|entry| entry.status).collect::<Vec<_>>(), [SUCCESS; 2]);
    rig.arm(SOLICITED);
    rig.bench.settle();
    assert_eq!(rig.notified(), [TOLD]);
    assert_eq!(rig.bench.take(rig.cq, 2)[0].status, NO_ACCESS);
    rig.close();
}

// Arms of which the card knows nothing, or not enough: what the driver satisfies by itself.

/// Has an arm of ANY satisfied by a receive that is flushed, polls, arms with `kind`, and lets another QP of the CQ succeed.
fn arm_behind_the_drivers(kind: u32) -> Vec<Call> {
    let rig = Rig::new(16);
    let other = rig.bench.qp(rig.pd, rig.cq, rig.cq, QpSize::default());
    assert_eq!(ndk!(other, NdkReceive(null_mut(), null(), 0)), SUCCESS);
    rig.arm(ANY);
    ndk!(other, NdkFlush());
    rig.bench.settle();
    assert_eq!(rig.notified(), [TOLD]);
    assert_eq!(rig.bench.take(rig.cq, 4).len(), 1);
    rig.arm(kind);
    rig.success();
    rig.bench.settle();
    let calls = rig.notified()[1..].to_vec();
    if calls.is_empty() {
        // It is still in force.
        rig.failure();
        rig.bench.settle();
        assert_eq!(rig.notified().len(), if kind == SOLICITED { 2 } else { 1 });
    }
    close!(rig.bench, other => NdkCloseQp);
    rig.close();
    calls
}

#[test]
fn any_behind_an_arm_that_the_driver_has_satisfied_is_any() {
    assert_eq!(arm_behind_the_drivers(ANY), [TOLD]);
}

#[test]
fn solicited_behind_an_arm_that_the_driver_has_satisfied_is_solicited() {
    assert_eq!(arm_behind_the_drivers(SOLICITED), []);
}

#[test]
fn errors_behind_an_arm_that_the_driver_has_satisfied_is_errors() {
    assert_eq!(arm_behind_the_drivers(ERRORS), []);
}

#[test]
fn an_arm_of_errors_inside_the_callback_is_not_satisfied_by_the_flush_that_comes_behind() {
    // The card has told of a success, and the driver is about to tell of a flushed receive. The callback for the first polls nothing.
    let rig = Rig::with_hook(16, |rig, _| rig.arm(ERRORS));
    assert_eq!(ndk!(rig.qp, NdkReceive(null_mut(), null(), 0)), SUCCESS);
    rig.arm(ANY);
    rig.success();
    rig.bench.world.run(6_000).unwrap();
    ndk!(rig.qp, NdkFlush());
    rig.bench.settle();
    assert_eq!(*rig.seen.borrow(), [SUCCESS]);
    rig.close();
}

#[test]
fn a_flushed_qp_that_was_never_connected_tells_once_of_all_its_receives() {
    // NdReceiveFlushQP of Microsoft's tests.
    let bench = Bench::new();
    let (pd, (cq, notified)) = (bench.pd(0), bench.cq(0, 16));
    let qp = bench.qp(pd, cq, cq, QpSize::default());
    assert_eq!([1, 2].map(|request: usize| ndk!(qp, NdkReceive(request as PVOID, null(), 0))), [SUCCESS; 2]);
    ndk!(cq, NdkArmCq(ANY));
    bench.settle();
    assert_eq!(notified.calls(), []);
    ndk!(qp, NdkFlush());
    bench.settle();
    assert_eq!(notified.calls(), [TOLD]);
    let entries: Vec<_> = bench.take(cq, 4).iter().map(|entry| (entry.request, entry.status)).collect();
    assert_eq!(entries, [(1, CANCELLED), (2, CANCELLED)]);
    bench.settle();
    assert_eq!(notified.calls(), [TOLD], "exactly one");
    close!(bench, qp => NdkCloseQp, cq => NdkCloseCq, pd => NdkClosePd);
    bench.close();
}

#[test]
fn a_batch_that_takes_the_flushed_receives_exactly_leaves_nothing_to_tell() {
    let rig = Rig::new(16);
    rig.arm(ANY);
    rig.flushed_receive();
    rig.bench.settle();
    assert_eq!(rig.bench.take(rig.cq, 1).len(), 1);
    rig.arm(ANY);
    rig.bench.settle();
    assert_eq!(rig.notified(), [TOLD], "the CQ is empty, and nothing has come since the last call");
    rig.close();
}

// Callbacks: where, and never in each other.

#[test]
fn an_arm_inside_the_callback_that_finds_entries_calls_again_when_the_callback_has_returned() {
    // A call inside a call would find the hook in use, and end the test.
    let rounds = 5;
    let rig = Rig::with_hook(16, move |rig, _| {
        let count = rig.seen.borrow().len();
        if count < rounds {
            // The entry is not polled, so this one is due at once, but not in here.
            rig.arm(ANY);
            // SAFETY: the adapter is open.
            assert_eq!(unsafe { VerbenaProcessEvents(rig.bench.sides[0].adapter) }, 0);
            assert_eq!(rig.seen.borrow().len(), count);
        }
    });
    rig.arm(ANY);
    rig.success();
    rig.bench.settle();
    assert_eq!(*rig.seen.borrow(), [SUCCESS; 5]);
    rig.close();
}

#[test]
fn the_same_for_flushed_receives() {
    let rig = Rig::with_hook(16, move |rig, _| {
        let count = rig.seen.borrow().len();
        if count < 5 {
            rig.arm(SOLICITED);
            // SAFETY: the adapter is open.
            assert_eq!(unsafe { VerbenaProcessEvents(rig.bench.sides[0].adapter) }, 0);
            assert_eq!(rig.seen.borrow().len(), count);
        }
    });
    rig.arm(ANY);
    rig.flushed_receive();
    rig.bench.settle();
    assert_eq!(*rig.seen.borrow(), [SUCCESS; 5]);
    rig.close();
}

#[test]
fn an_arm_never_calls_on_its_own_stack() {
    // Whatever there is to tell when it comes.
    for event in [Rig::success, Rig::failure, Rig::cancelled, Rig::flushed_receive, Rig::overrun] {
        for kind in KINDS {
            let rig = Rig::new(2);
            event(&rig);
            rig.bench.settle();
            (0..3).for_each(|_| rig.arm(kind));
            // Nor by a flush, nor by polling.
            ndk!(rig.qp, NdkFlush());
            rig.bench.take(rig.cq, 4);
            assert_eq!(rig.notified(), []);
            rig.bench.settle();
            assert!(rig.notified().len() <= 1, "three arms are one");
            rig.close();
        }
    }
}

#[test]
fn the_usual_consumer_polls_and_arms_inside_its_callback_and_misses_nothing() {
    let found: Rc<RefCell<Vec<u64>>> = Rc::default();
    let noted = Rc::clone(&found);
    let rig = Rig::with_hook(64, move |rig, status| {
        assert_eq!(status, SUCCESS);
        loop {
            let entries = rig.bench.take(rig.cq, 5);
            noted.borrow_mut().extend(entries.iter().map(|entry| entry.request));
            if entries.len() < 5 {
                break;
            }
        }
        rig.arm(ANY);
    });
    rig.arm(ANY);
    let mut posted = 0;
    for round in 0u64..150 {
        // Bursts of one to eight, and every pause from none to longer than a completion takes.
        for _ in 0..=round % 8 {
            if posted - (found.borrow().len() as u64) < 16 && rig.bench.write(rig.qp, posted, &[], 0, 0, 0) == SUCCESS {
                posted += 1;
            }
        }
        rig.bench.world.run(13 * (round * 7 % 150)).unwrap();
        if round % 3 != 0 {
            rig.bench.process();
        }
    }
    rig.bench.wait("the last completion", || (found.borrow().len() as u64 == posted).then_some(()));
    assert!(posted > 150, "{posted}");
    assert_eq!(*found.borrow(), (0..posted).collect::<Vec<_>>());
    rig.close();
}

#[test]
fn nothing_is_lost_between_the_last_poll_and_the_arm() {
    let rig = Rig::new(16);
    // How long it takes from the post until an entry can be polled.
    let start = rig.bench.world.clock();
    rig.success();
    while rig.bench.take(rig.cq, 1).is_empty() {
        rig.bench.world.run(1).unwrap();
    }
    let latency = rig.bench.world.clock() - start;
    let mut calls = 0;
    let (mut early, mut late) = (0, 0);
    // The entry comes before the poll, between poll and arm, while the arm is on its way to the card, and after it.
    let around = latency.saturating_sub(150)..latency + 60;
    for (number, pause) in around.chain((0..2 * latency).step_by(97)).enumerate() {
        rig.success();
        rig.bench.world.run(pause).unwrap();
        let polled = rig.bench.take(rig.cq, 4).len();
        // Some time between the two, which is no more than a call of a function takes.
        rig.bench.world.run(number as u64 % 5).unwrap();
        rig.arm(ANY);
        assert_eq!(rig.notified().len(), calls, "on the stack of NdkArmCq");
        if polled == 0 {
            // The wait gives up if the notification is lost.
            rig.bench.wait("a notification", || (rig.notified().len() > calls).then_some(()));
            calls += 1;
            early += 1;
            assert_eq!(rig.bench.take(rig.cq, 4).len(), 1, "a pause of {pause}");
        } else {
            late += 1;
            (0..10).for_each(|_| rig.bench.step());
            assert_eq!(rig.notified().len(), calls, "what was polled is not told, after a pause of {pause}");
            // Takes the arm back.
            rig.success();
            rig.bench.wait("a notification", || (rig.notified().len() > calls).then_some(()));
            calls += 1;
            assert_eq!(rig.bench.take(rig.cq, 4).len(), 1);
        }
        assert_eq!(rig.notified().len(), calls);
    }
    assert!(early > 20 && late > 20, "{early} arms before the entry, {late} behind it");
    rig.close();
}

#[test]
fn callbacks_do_not_overlap_when_several_threads_process_events() {
    /// What callbacks and threads share.
    struct Shared {
        cq: AtomicUsize,
        is_inside: AtomicBool,
        has_overlapped: AtomicBool,
        found: AtomicUsize,
    }
    unsafe extern "C" fn notify(context: PVOID, _: NTSTATUS) {
        // SAFETY: the context lives for good.
        let shared = unsafe { &*context.cast::<Shared>() };
        if shared.is_inside.swap(true, Ordering::SeqCst) {
            shared.has_overlapped.store(true, Ordering::SeqCst);
        }
        let cq = shared.cq.load(Ordering::SeqCst) as *mut NDK_CQ;
        let mut results: Vec<NDK_RESULT> = Vec::with_capacity(4);
        loop {
            let count = ndk!(cq, NdkGetCqResults(results.as_mut_ptr(), 4));
            shared.found.fetch_add(count as usize, Ordering::SeqCst);
            if count < 4 {
                break;
            }
        }
        ndk!(cq, NdkArmCq(ANY));
        std::thread::yield_now();
        shared.is_inside.store(false, Ordering::SeqCst);
    }
    let mut bench = Bench::new();
    let shared: &'static Shared = Box::leak(Box::new(Shared {
        cq: AtomicUsize::new(0),
        is_inside: AtomicBool::new(false),
        has_overlapped: AtomicBool::new(false),
        found: AtomicUsize::new(0),
    }));
    let context: PVOID = std::ptr::from_ref(shared).cast_mut().cast();
    let slot = bench.slot();
    let adapter = bench.sides[0].adapter;
    let status = ndk!(adapter, NdkCreateCq(64, Some(notify), context, null_mut(), Some(on_created), slot.context(), null_mut()));
    let cq: *mut NDK_CQ = bench.created(status, slot);
    shared.cq.store(cq as usize, Ordering::SeqCst);
    let (other_cq, _) = bench.cq(1, 16);
    let pds = [0, 1].map(|side| bench.pd(side));
    let qps = [bench.qp(pds[0], cq, cq, QpSize::default()), bench.qp(pds[1], other_cq, other_cq, QpSize::default())];
    let connected = bench.connect(qps);
    ndk!(cq, NdkArmCq(ANY));

    let is_over = Arc::new(AtomicBool::new(false));
    let number = adapter as usize;
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    // SAFETY: the adapter is open until the threads are gone.
                    unsafe { VerbenaProcessEvents(number as *mut NDK_ADAPTER) };
                    std::thread::yield_now();
                }
            })
        })
        .collect();
    // The one wait of these files that goes by the clock on the wall: how often the threads come to run is not the simulation's to say.
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut posted = 0;
    while shared.found.load(Ordering::SeqCst) < 200 && Instant::now() < deadline {
        if posted < 200 && bench.write(qps[0], 0, &[], 0, 0, 0) == SUCCESS {
            posted += 1;
        }
        bench.world.run(20).unwrap();
        std::thread::yield_now();
    }
    is_over.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!((shared.found.load(Ordering::SeqCst), posted), (200, 200));
    assert!(!shared.has_overlapped.load(Ordering::SeqCst));
    close!(
        bench,
        connected.connectors[0] => NdkCloseConnector,
        connected.connectors[1] => NdkCloseConnector,
        connected.listener => NdkCloseListener,
        qps[0] => NdkCloseQp,
        qps[1] => NdkCloseQp,
        cq => NdkCloseCq,
        other_cq => NdkCloseCq,
        pds[0] => NdkClosePd,
        pds[1] => NdkClosePd,
    );
    bench.close();
}

// A dead CQ.

macro_rules! dead {
    ($($name:ident: $kind:ident;)*) => {$(
        #[test]
        fn $name() {
            let rig = Rig::new(2);
            rig.overrun();
            rig.bench.settle();
            assert_eq!(rig.notified(), [], "nobody has asked");
            for arms in 1..4 {
                rig.arm($kind);
                assert_eq!(rig.notified().len(), arms - 1, "on the stack of NdkArmCq");
                rig.bench.settle();
                // choice: each arm is answered.
                assert_eq!(rig.notified(), vec![DEAD; arms]);
            }
            rig.close();
        }
    )*};
}

dead! {
    any_of_a_dead_cq_is_answered_with_its_death: ANY;
    solicited_of_a_dead_cq_is_answered_with_its_death: SOLICITED;
    errors_of_a_dead_cq_is_answered_with_its_death: ERRORS;
}

#[test]
fn a_dead_cq_gives_nothing_and_takes_its_qps_with_it() {
    let rig = Rig::new(2);
    let other = rig.bench.qp(rig.pd, rig.cq, rig.cq, QpSize::default());
    assert_eq!(ndk!(other, NdkReceive(null_mut(), null(), 0)), SUCCESS);
    rig.arm(SOLICITED);
    rig.overrun();
    rig.bench.settle();
    assert_eq!(rig.notified(), [DEAD]);
    // NDKPI: no further completion is reported, those that were written before included (choice).
    assert_eq!(rig.bench.take(rig.cq, 8), []);
    assert_eq!(rig.bench.write(rig.qp, 1, &[], 0, 0, 0), CONNECTION_INVALID);
    assert_eq!(ndk!(other, NdkReceive(null_mut(), null(), 0)), CONNECTION_INVALID);
    ndk!(other, NdkFlush());
    rig.bench.settle();
    assert_eq!((rig.notified(), rig.bench.take(rig.cq, 8)), (vec![DEAD], vec![]));
    close!(rig.bench, other => NdkCloseQp);
    rig.close();
}

#[test]
fn a_cq_of_exactly_the_outstanding_requests_is_not_overrun() {
    for depth in [1, 2, 3, 16] {
        let rig = Rig::new(depth);
        rig.arm(ERRORS);
        for _ in 0..3 {
            (0..depth).for_each(|_| rig.success());
            rig.bench.settle();
            assert_eq!(rig.bench.take(rig.cq, 20).len(), depth as usize);
        }
        assert_eq!(rig.notified(), []);
        rig.close();
    }
}

// The end.

#[test]
fn nothing_is_notified_behind_the_close() {
    for event in [Rig::success, Rig::failure, Rig::cancelled, Rig::flushed_receive, Rig::overrun] {
        for kind in KINDS {
            let rig = Rig::new(2);
            event(&rig);
            rig.bench.settle();
            // Something is due, and the CQ is closed before it comes.
            rig.arm(kind);
            let notified = rig.slot;
            let (cq, bench) = (rig.cq, &rig.bench);
            // SAFETY: the CQ is live and not used any more.
            let status = unsafe { (*(*cq).Dispatch).NdkCloseCq.unwrap()(cq.cast(), Some(on_closed), notified.context()) };
            assert_eq!(status, PENDING, "its QP is open");
            bench.settle();
            assert!(!notified.calls().contains(&Call::Closed));
            rig.close_rest();
            bench.wait("the close", || notified.calls().contains(&Call::Closed).then_some(()));
            bench.settle();
            assert_eq!(notified.calls().last(), Some(&Call::Closed));
            assert!(notified.count() <= 2, "{:?}", notified.calls());
            rig.bench.close();
        }
    }
}

#[test]
fn a_cq_can_be_closed_inside_its_own_notification() {
    let bench = Bench::new();
    let (pd, slot) = (bench.pd(0), bench.slot());
    let order: Rc<RefCell<Vec<&str>>> = Rc::default();
    let (noted, closed) = (Rc::clone(&order), Rc::clone(&order));
    let closed = hook(move |_| closed.borrow_mut().push("closed"));
    let place: Rc<RefCell<(*mut NDK_CQ, *mut NDK_QP)>> = Rc::new(RefCell::new((null_mut(), null_mut())));
    let (objects, qp_closed) = (Rc::clone(&place), bench.slot());
    let notification = hook(move |_| {
        noted.borrow_mut().push("notified");
        let (cq, qp) = *objects.borrow();
        assert_eq!(ndk!(qp, NdkCloseQp(Some(on_closed), qp_closed.context())), PENDING);
        assert_eq!(ndk!(cq, NdkCloseCq(Some(call_plain), closed)), PENDING);
        noted.borrow_mut().push("returns");
    });
    let (adapter, context) = (bench.sides[0].adapter, slot.context());
    let status = ndk!(adapter, NdkCreateCq(4, Some(call_status), notification, null_mut(), Some(on_created), context, null_mut()));
    let cq: *mut NDK_CQ = bench.created(status, slot);
    let qp = bench.qp(pd, cq, cq, QpSize::default());
    *place.borrow_mut() = (cq, qp);
    assert_eq!(ndk!(qp, NdkReceive(null_mut(), null(), 0)), SUCCESS);
    ndk!(cq, NdkArmCq(ANY));
    ndk!(qp, NdkFlush());
    bench.wait("the close", || (order.borrow().len() == 3).then_some(()));
    assert_eq!(*order.borrow(), ["notified", "returns", "closed"]);
    close!(bench, pd => NdkClosePd);
    bench.close();
}

// Moderation.

/// Clocks of a microsecond.
const US: u64 = 250;
const MAX: u32 = u32::MAX;
/// Depth of the CQs that are moderated.
const DEPTH: u32 = 16;
/// Clocks that a notification of a write takes without moderation, and by which the walker of the card and the steps of the bench are late.
const AT_ONCE: std::ops::Range<u64> = 100..2_500;

/// When a notification comes, behind the first of some successes.
enum When {
    AtOnce,
    /// After so many microseconds.
    Later(u64),
    /// With completion number so much.
    With(usize),
}

macro_rules! moderated {
    ($($name:ident: $interval:expr, $count:expr => $when:expr;)*) => {$(
        #[test]
        fn $name() {
            let rig = Rig::new(DEPTH);
            assert_eq!(rig.moderate($interval, $count), SUCCESS);
            rig.check_moderation(&$when);
            // Every arm anew.
            rig.check_moderation(&$when);
            rig.close();
        }
    )*};
}

moderated! {
    without_an_interval_nothing_is_moderated: 0, 8 => When::AtOnce;
    without_an_interval_nothing_is_moderated_whatever_the_count: 0, MAX => When::AtOnce;
    with_a_count_of_0_nothing_is_moderated: 50, 0 => When::AtOnce;
    with_a_count_of_1_nothing_is_moderated: 50, 1 => When::AtOnce;
    with_a_count_of_1_nothing_is_moderated_whatever_the_interval: MAX, 1 => When::AtOnce;
    without_a_limit_of_time_the_count_decides: MAX, 4 => When::With(4);
    a_count_of_the_depth_decides: MAX, DEPTH => When::With(DEPTH as usize);
    without_a_limit_of_completions_the_interval_decides: 60, MAX => When::Later(60);
    with_a_count_above_the_depth_the_interval_decides: 60, DEPTH + 1 => When::Later(60);
    with_both_the_interval_may_come_first: 60, 4 => When::Later(60);
    with_both_the_count_may_come_first: 4_000, 4 => When::With(4);
}

impl Rig {
    fn moderate(&self, interval: u32, count: u32) -> NTSTATUS {
        ndk!(self.cq, NdkControlCqInterruptModeration(interval, count))
    }

    /// Waits for one more notification, and returns the clocks.
    fn clocks_until_notified(&self) -> u64 {
        let (start, before) = (self.bench.world.clock(), self.slot.count());
        self.bench.wait("a notification", || (self.slot.count() > before).then_some(()));
        self.bench.world.clock() - start
    }

    /// Arms, posts, looks when the notification comes and that the completions are there before, and takes them.
    fn check_moderation(&self, when: &When) {
        self.arm(ANY);
        self.success();
        let mut posted = 1;
        let taken = match *when {
            When::AtOnce => self.clocks_until_notified(),
            When::Later(us) => {
                self.bench.settle();
                assert_eq!(self.bench.take(self.cq, 4).len(), 1, "it can be polled");
                posted = 0;
                self.clocks_until_notified() + 6_000 - us * US
            }
            When::With(count) => {
                while posted + 1 < count {
                    self.success();
                    posted += 1;
                }
                let before = self.slot.count();
                (0..5).for_each(|_| self.bench.settle());
                assert_eq!(self.slot.count(), before, "{posted} completions of {count}");
                self.success();
                posted += 1;
                self.clocks_until_notified()
            }
        };
        assert!(AT_ONCE.contains(&taken), "{taken} clocks");
        assert_eq!(self.bench.take(self.cq, 64).len(), posted);
        // One call for one arm.
        let before = self.slot.count();
        self.bench.settle();
        assert_eq!(self.slot.count(), before);
    }
}

#[test]
fn a_cq_is_not_moderated_unless_it_is_asked_for_and_the_last_wish_counts() {
    let rig = Rig::new(DEPTH);
    assert_ne!(rig.bench.info(0).AdapterFlags & NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, 0);
    rig.check_moderation(&When::AtOnce);
    // choice: both without a limit would never call; a count above the depth is none.
    for count in [MAX, DEPTH + 1] {
        assert_eq!(rig.moderate(MAX, count), nt(NtStatus::INVALID_PARAMETER_MIX));
    }
    rig.check_moderation(&When::AtOnce);
    for (interval, count, when) in [(MAX, 3, When::With(3)), (50, MAX, When::Later(50)), (0, 0, When::AtOnce), (70_000, 2, When::With(2))] {
        assert_eq!(rig.moderate(interval, count), SUCCESS);
        rig.check_moderation(&when);
    }
    // What is held back goes by the new wish.
    assert_eq!(rig.moderate(MAX, 9), SUCCESS);
    rig.arm(ANY);
    rig.success();
    rig.bench.settle();
    let before = rig.slot.count();
    assert_eq!(rig.moderate(0, 0), SUCCESS);
    rig.clocks_until_notified();
    assert_eq!(rig.slot.count(), before + 1);
    rig.close();
}

#[test]
fn moderation_holds_back_neither_what_the_driver_tells_nor_an_overrun() {
    let rig = Rig::new(DEPTH);
    assert_eq!(rig.moderate(MAX, 9), SUCCESS);
    rig.arm(ANY);
    // choice: a flushed receive is told at once.
    rig.flushed_receive();
    rig.bench.settle();
    assert_eq!(rig.notified(), [TOLD]);
    rig.close();

    let rig = Rig::new(2);
    assert_eq!(rig.moderate(MAX, 2), SUCCESS);
    rig.arm(ERRORS);
    rig.overrun();
    rig.bench.settle();
    assert_eq!(rig.notified(), [DEAD]);
    rig.close();
}

#[test]
fn a_cq_that_is_closed_calls_no_more_though_a_notification_is_held_back() {
    let rig = Rig::new(DEPTH);
    assert_eq!(rig.moderate(200, MAX), SUCCESS);
    rig.arm(ANY);
    rig.success();
    rig.bench.settle();
    rig.close_rest();
    close!(rig.bench, rig.cq => NdkCloseCq);
    // The card raises no event for it either.
    let events = || rig.bench.sides[0].card.bar().read32(Counter::Eqes.offset());
    let before = events();
    (0..10).for_each(|_| rig.bench.settle());
    assert_eq!((rig.notified(), events()), (vec![], before));
    rig.bench.close();
}

// What a CQ is not able to do.

#[test]
fn there_is_no_resizing_and_the_adapter_says_so() {
    let bench = Bench::new();
    let (cq, notified) = bench.cq(0, 16);
    let info = bench.info(0);
    assert_eq!(info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, 0);
    let slot = bench.slot();
    for (depth, expected) in [
        (1, NOT_SUPPORTED),
        (16, NOT_SUPPORTED),
        (info.MaxCqDepth, NOT_SUPPORTED),
        (info.MaxCqDepth + 1, INVALID_PARAMETER),
        (u32::MAX, INVALID_PARAMETER),
    ] {
        assert_eq!(ndk!(cq, NdkResizeCq(depth, Some(on_done), slot.context())), expected, "{depth}");
    }
    bench.settle();
    assert_eq!((slot.count(), notified.count()), (0, 0));
    close!(bench, cq => NdkCloseCq);
    bench.close();
}

#[test]
fn a_cq_needs_a_callback_and_a_depth_that_there_is() {
    let bench = Bench::new();
    let (adapter, slot) = (bench.sides[0].adapter, bench.slot());
    let create = |depth, callback| {
        let context = slot.context();
        ndk!(adapter, NdkCreateCq(depth, callback, null_mut(), null_mut(), Some(on_created), context, null_mut()))
    };
    assert_eq!(create(16, None), INVALID_PARAMETER);
    // choice: there is no CQ of no entries.
    assert_eq!(create(0, Some(call_status)), INVALID_PARAMETER);
    assert_eq!(create(65_537, Some(call_status)), INVALID_PARAMETER);
    bench.settle();
    assert_eq!(slot.count(), 0);
    assert_eq!(create(65_536, Some(call_status)), PENDING);
    let cq: *mut NDK_CQ = bench.created(PENDING, slot);
    close!(bench, cq => NdkCloseCq);
    bench.close();
}

// Helpers.

/// A connected QP of side 0 and its CQ, which is the one to be armed.
struct Rig {
    bench: Bench,
    pd: *mut NDK_PD,
    cq: *mut NDK_CQ,
    qp: *mut NDK_QP,
    depth: u32,
    /// Where notifications go, unless a hook gets them.
    slot: &'static Slot,
    /// Statuses that a hook got.
    seen: Rc<RefCell<Vec<NTSTATUS>>>,
    /// The other side, and the connection.
    other: (*mut NDK_PD, *mut NDK_CQ, *mut NDK_QP),
    connected: Connected,
    /// QPs of both sides that are used up, with their connections.
    old: Vec<(Connected, [*mut NDK_QP; 2])>,
}

/// What a hook of a rig may use.
struct Inside<'a> {
    bench: &'a Bench,
    cq: *mut NDK_CQ,
    seen: &'a RefCell<Vec<NTSTATUS>>,
}

impl Inside<'_> {
    fn arm(&self, kind: u32) {
        ndk!(self.cq, NdkArmCq(kind));
    }
}

impl Rig {
    fn new(depth: u32) -> Self {
        let bench = Bench::new();
        let (cq, slot) = bench.cq(0, depth);
        Self::of(bench, cq, slot, depth)
    }

    /// Returns a rig whose notifications run `run`.
    fn with_hook(depth: u32, run: impl Fn(&Inside<'_>, NTSTATUS) + 'static) -> Box<Self> {
        let bench = Bench::new();
        let (place, slot): (Rc<RefCell<*const Self>>, _) = (Rc::new(RefCell::new(null())), bench.slot());
        let rig_at = Rc::clone(&place);
        let notification = hook(move |status| {
            // SAFETY: the rig is boxed and lives as long as its CQ can be armed.
            let rig = unsafe { &**rig_at.borrow() };
            rig.seen.borrow_mut().push(status as u32 as NTSTATUS);
            run(&Inside { bench: &rig.bench, cq: rig.cq, seen: &rig.seen }, status as u32 as NTSTATUS);
        });
        let (adapter, context) = (bench.sides[0].adapter, slot.context());
        let status = ndk!(adapter, NdkCreateCq(depth, Some(call_status), notification, null_mut(), Some(on_created), context, null_mut()));
        let cq = bench.created(status, slot);
        let rig = Box::new(Self::of(bench, cq, slot, depth));
        *place.borrow_mut() = &raw const *rig;
        rig
    }

    fn of(mut bench: Bench, cq: *mut NDK_CQ, slot: &'static Slot, depth: u32) -> Self {
        let (pd, other_pd, (other_cq, _)) = (bench.pd(0), bench.pd(1), bench.cq(1, 64));
        let qps = [bench.qp(pd, cq, cq, QpSize::default()), bench.qp(other_pd, other_cq, other_cq, QpSize::default())];
        let connected = bench.connect(qps);
        let other = (other_pd, other_cq, qps[1]);
        Self { bench, pd, cq, qp: qps[0], depth, slot, seen: Rc::default(), other, connected, old: Vec::new() }
    }

    /// Connects new QPs in place of those that have failed. Processes events.
    fn renew(&mut self) {
        let (other_pd, other_cq, _) = self.other;
        let size = QpSize::default();
        let qps = [self.bench.qp(self.pd, self.cq, self.cq, size), self.bench.qp(other_pd, other_cq, other_cq, size)];
        let connected = std::mem::replace(&mut self.connected, self.bench.connect(qps));
        self.old.push((connected, [self.qp, self.other.2]));
        (self.qp, self.other.2) = (qps[0], qps[1]);
    }

    fn arm(&self, kind: u32) {
        ndk!(self.cq, NdkArmCq(kind));
    }

    fn notified(&self) -> Vec<Call> {
        self.slot.calls()
    }

    /// Posts a request that will succeed.
    fn success(&self) {
        assert_eq!(self.bench.write(self.qp, 1, &[], 0, 0, 0), SUCCESS);
    }

    /// Posts one that the card refuses.
    fn failure(&self) {
        let sge = NDK_SGE { Address: 0x1000, Length: 8, MemoryRegionToken: 0xBAD };
        assert_eq!(self.bench.write(self.qp, 2, &[sge], 0, 0, 0), SUCCESS);
    }

    /// Posts one that the card does not see before it is flushed.
    fn cancelled(&self) {
        const DEFER: u32 = 0x200;
        assert_eq!(self.bench.write(self.qp, 3, &[], 0, 0, DEFER), SUCCESS);
        ndk!(self.qp, NdkFlush());
    }

    fn flushed_receive(&self) {
        assert_eq!(ndk!(self.qp, NdkReceive(4 as PVOID, null(), 0)), SUCCESS);
        ndk!(self.qp, NdkFlush());
    }

    /// Posts one request more than the CQ has entries.
    fn overrun(&self) {
        (0..=self.depth).for_each(|_| self.success());
    }

    /// Closes everything but the CQ and the adapters.
    fn close_rest(&self) {
        let (other_pd, other_cq, other_qp) = self.other;
        let current = (&self.connected, [self.qp, other_qp]);
        for (connected, qps) in self.old.iter().map(|(connected, qps)| (connected, *qps)).chain([current]) {
            close!(
                self.bench,
                connected.connectors[0] => NdkCloseConnector,
                connected.connectors[1] => NdkCloseConnector,
                connected.listener => NdkCloseListener,
                qps[0] => NdkCloseQp,
                qps[1] => NdkCloseQp,
            );
        }
        close!(self.bench, other_cq => NdkCloseCq, self.pd => NdkClosePd, other_pd => NdkClosePd);
    }
}

/// Closes a rig, boxed or not.
trait Close {
    fn close(self);
}

impl Close for Rig {
    fn close(self) {
        self.close_rest();
        close!(self.bench, self.cq => NdkCloseCq);
        self.bench.close();
    }
}

impl Close for Box<Rig> {
    fn close(self) {
        self.close_rest();
        // The hook may be called until the CQ is closed, so the rig stays where it is.
        close!(self.bench, self.cq => NdkCloseCq);
        let rig = *self;
        rig.bench.close();
    }
}
