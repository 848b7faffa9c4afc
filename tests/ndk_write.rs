//! The requirements that the reference of NDKPI can be read to make of `NdkWrite`, numbered here, with a test for each, through the C interface on
//! verilated cards.
//!
//! Data goes from a source with bytes of its own to a sink of canaries; a model of the sink says what may be in it. A comment that
//! begins with `choice:` says what this provider does where NDKPI leaves it open. Helpers are at the bottom.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::{null, null_mut, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use verbena_abi::limits::{self, MAX_MTU};
use verbena_abi::regs::{Counter, Doorbell};
use verbena_host::ndk::NtStatus;
use verbena_host::{Device, DmaBuffer};
use verbena_ndk::abi::*;
use verbena_ndk::open::VerbenaQueryStatistics;
use verbena_sim::rng::Rng;
use verbena_sim::{LinkConfig, World};
use verbena_tests::ndk::*;
use verbena_tests::repeat::seed;
use verbena_tests::{close, ndk};

const FULL: NTSTATUS = nt(NtStatus::NO_MORE_ENTRIES);
const TOO_MANY_SGES: NTSTATUS = nt(NtStatus::DATA_OVERRUN);
const TOO_LONG: NTSTATUS = nt(NtStatus::BUFFER_OVERFLOW);
const NOT_SUPPORTED: NTSTATUS = nt(NtStatus::NOT_SUPPORTED);
const ACCESS_VIOLATION: NTSTATUS = nt(NtStatus::ACCESS_VIOLATION);

const SILENT: u32 = NDK_OP_FLAG_SILENT_SUCCESS;
const FENCE: u32 = NDK_OP_FLAG_READ_FENCE;
const INLINE: u32 = NDK_OP_FLAG_INLINE;
const DEFER: u32 = NDK_OP_FLAG_DEFER;

const RECEIVE: u32 = NDK_OPERATION_TYPE::NdkOperationTypeReceive as u32;
const WRITE: u32 = NDK_OPERATION_TYPE::NdkOperationTypeWrite as u32;

/// `ProviderErrorCode` of a write that the peer has refused: the card's status 0x0A, and the syndrome of the NAK.
const REMOTE_ACCESS: u32 = 0x620A;

// Call shape.

#[test]
fn write_01_takes_seven_parameters_in_the_order_of_the_interface() {
    type Write = unsafe extern "C" fn(*mut NDK_QP, *mut c_void, *const NDK_SGE, u32, u64, u32, u32) -> i32;
    let pair = Pair::new(QpSize::default());
    let qp = pair.qp();
    // SAFETY: the QP is live; its table has eleven entries, of which this one is number 9.
    let (write, entry): (Write, Write) = unsafe { ((*(*qp).Dispatch).NdkWrite.unwrap(), (*qp).Dispatch.cast::<Write>().add(9).read()) };
    assert_eq!(write as usize, entry as usize, "entry 9 of the table");
    // Three entries are there, two are counted.
    let list = [pair.source.sge(10, 5), pair.source.sge(90, 6), pair.source.sge(200, 7)];
    let (to, token) = (pair.sink.va(1001), pair.sink.token);
    // SAFETY: the objects are live, and so is the list.
    let post = |request: u64, flags| unsafe { write(qp, request as PVOID, list.as_ptr(), 2, to, token, flags) };
    assert_eq!(post(0x51, SILENT), SUCCESS);
    assert_eq!(post(0x1234_5678_9ABC_DEF0, 0), SUCCESS);
    pair.written(1001, &[pair.source.read(10, 5), pair.source.read(90, 6)].concat());
    pair.succeed([0x1234_5678_9ABC_DEF0]);
    pair.check();
    // The context is optional.
    assert_eq!(post(0, 0), SUCCESS);
    pair.succeed([0]);
    pair.close();
}

#[test]
fn write_02_returns_while_the_clocks_stand_still_and_calls_nobody() {
    /// Posts from inside a callback, which is where DISPATCH_LEVEL is.
    struct Inside {
        qp: Mutex<*mut NDK_QP>,
        world: Arc<World>,
        seen: Mutex<Vec<(NTSTATUS, u64)>>,
    }
    unsafe extern "C" fn post_inside(context: PVOID, _: NTSTATUS) {
        // SAFETY: the context is leaked, and the QP is live.
        let inside = unsafe { &*context.cast::<Inside>() };
        let clock = inside.world.clock();
        let status = ndk!(*inside.qp.lock().unwrap(), NdkWrite(2 as PVOID, null(), 0, 0, 0, 0));
        inside.seen.lock().unwrap().push((status, inside.world.clock() - clock));
    }
    let bench = Bench::new();
    let mut ends = End::both(&bench);
    let inside = Inside { qp: Mutex::new(null_mut()), world: Arc::clone(&bench.world), seen: Mutex::default() };
    let inside: &'static Inside = Box::leak(Box::new(inside));
    let (context, slot) = (std::ptr::from_ref(inside).cast_mut().cast(), bench.slot());
    let adapter = bench.sides[0].adapter;
    let status = ndk!(adapter, NdkCreateCq(64, Some(post_inside), context, null_mut(), Some(on_created), slot.context(), null_mut()));
    close!(bench, ends[0].initiator_cq => NdkCloseCq);
    ends[0].initiator_cq = bench.created(status, slot);
    let pair = Pair::of(bench, ends, QpSize::default());
    *inside.qp.lock().unwrap() = pair.qp();
    let clock = pair.bench.world.clock();
    assert_eq!(pair.try_post(0, 7, 9_000, 100, 0), SUCCESS);
    assert_eq!(pair.inline(1, b"inline", 20_000, DEFER), SUCCESS);
    pair.written(100, &pair.source.read(7, 9_000));
    for (what, status, fail) in FAILURES {
        assert_eq!(fail(&pair), status, "{what}");
    }
    // A card's register can't be read, nor an answer waited for, without clocks.
    assert_eq!(pair.bench.world.clock(), clock);
    pair.succeed([0, 1]);
    assert_eq!(inside.seen.lock().unwrap()[..], [], "a callback that nobody has armed");
    ndk!(pair.ends[0].initiator_cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    assert_eq!(pair.inline(3, b"again", 30_000, 0), SUCCESS);
    pair.succeed([3, 2]);
    assert_eq!(inside.seen.lock().unwrap()[..], [(SUCCESS, 0)]);
    pair.check();
    pair.close();
}

#[test]
fn write_03_runs_beside_receives_reaping_a_flush_and_the_close_of_the_connector() {
    let mut pair = Pair::new(QpSize { receives: 512, initiators: 64, ..QpSize::default() });
    for round in 0..4 {
        let (poster, ends, qp) = (pair.poster(), pair.ends, pair.qp() as usize);
        let (cq, is_over) = (ends[0].initiator_cq as usize, AtomicBool::new(false));
        let (posted, receives, entries) = thread::scope(|scope| {
            let writes = scope.spawn(move || poster.post_until_refused(&AtomicU64::new(0)));
            let receives = scope.spawn(move || {
                let post = |request: &u64| ndk!(qp as *mut NDK_QP, NdkReceive(*request as PVOID, null(), 0));
                (0..512u64).take_while(|request| post(request) == SUCCESS).count() as u64
            });
            let is_over = &is_over;
            let reaper = scope.spawn(move || {
                let mut entries = Vec::new();
                // One more look when all is over.
                let mut is_last = false;
                while !is_last {
                    is_last = is_over.load(Ordering::SeqCst);
                    while let [entry] = take(cq as *mut NDK_CQ, 1)[..] {
                        entries.push(entry);
                    }
                    thread::yield_now();
                }
                entries
            });
            (0..2 * round).for_each(|_| pair.bench.step());
            let flush = scope.spawn(move || ndk!(qp as *mut NDK_QP, NdkFlush()));
            let closed = pair.close_connector();
            let posted = pair.join(writes);
            let receives = pair.join(receives);
            flush.join().unwrap();
            pair.bench.closed(closed);
            pair.bench.settle();
            is_over.store(true, Ordering::SeqCst);
            (posted, receives, reaper.join().unwrap())
        });
        let cancelled = pair.bench.reap(ends[0].receive_cq, receives as usize);
        check(&cancelled, pair.size.context, RECEIVE, CANCELLED, 0..receives);
        pair.check_race(posted, &entries);
        pair.reconnect();
    }
    pair.close();
}

#[test]
fn write_04_needs_no_lock_that_several_qps_share() {
    // One thread for each QP. One QP is flushed meanwhile, and the connector of another one is closed.
    let mut pair = Pair::new(QpSize::default());
    let others = [1, 2, 3].map(|context| pair.another(QpSize { context, initiators: 8, ..QpSize::default() }));
    let each = 150u64;
    let qps = [0, 1, 2].map(|number| others[number].qps[0] as usize);
    let (sge, to, token) = (pair.source.sge(0, 4), pair.sink.va(0), pair.sink.token);
    let mut entries = Vec::new();
    let posted = thread::scope(|scope| {
        let threads = qps.map(|qp| {
            scope.spawn(move || {
                let mut request = 0;
                while request < each {
                    match write(qp as *mut NDK_QP, request, &[sge], to, token, 0) {
                        SUCCESS => request += 1,
                        FULL => thread::yield_now(),
                        CONNECTION_INVALID => break,
                        other => panic!("a post gave {other:#x}"),
                    }
                }
                request
            })
        });
        let mut closed = None;
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            pair.bench.step();
            entries.extend(take(pair.ends[0].initiator_cq, 64));
            if closed.is_none() && entries.len() > 30 {
                ndk!(others[0].qps[0], NdkFlush());
                // SAFETY: the connector is live, and nobody uses it from here on.
                let close = unsafe { (*(*others[1].connectors[0]).Dispatch).NdkCloseConnector };
                closed = Some(pair.bench.close_object(close, others[1].connectors[0].cast()));
            }
        }
        pair.bench.closed(closed.expect("something was stopped"));
        threads.map(|thread| thread.join().unwrap())
    });
    pair.bench.settle();
    entries.extend(take(pair.ends[0].initiator_cq, 64));
    for (context, posted) in (1..).zip(posted) {
        let of: Vec<Entry> = entries.iter().copied().filter(|entry| entry.qp == context).collect();
        let done = of.iter().take_while(|entry| entry.status == SUCCESS).count();
        check(&of[..done], context, WRITE, SUCCESS, 0..done as u64);
        check(&of[done..], context, WRITE, CANCELLED, done as u64..posted);
    }
    assert_eq!(posted[2], each, "the QP that nobody has stopped");
    assert!(entries.iter().all(|entry| entry.qp != 3 || entry.status == SUCCESS));
    pair.written(0, &pair.source.read(0, 4));
    let [first, mut second, third] = others;
    second.connectors[0] = null_mut();
    [first, second, third].iter().for_each(|connected| close_connected(&pair.bench, connected));
    pair.check();
    pair.close();
}

#[test]
fn write_05_does_not_look_at_list_and_inline_source_again() {
    let pair = Pair::new(QpSize::default());
    let mut list = [pair.source.sge(100, 50), pair.source.sge(900, 60)];
    let mut bytes = *b"inline and soon gone";
    // The card is not even told of them before both are overwritten.
    assert_eq!(pair.bench.write(pair.qp(), 0, &list, pair.sink.va(10), pair.sink.token, DEFER), SUCCESS);
    assert_eq!(pair.inline(1, &bytes, 500, DEFER), SUCCESS);
    list.fill(NDK_SGE { Address: u64::MAX, Length: 77, MemoryRegionToken: 0xBAD });
    bytes.fill(0x11);
    std::hint::black_box((&list, &bytes));
    pair.written(10, &[pair.source.read(100, 50), pair.source.read(900, 60)].concat());
    pair.post(2, 0, 4, 900, 0);
    pair.succeed(0..3);
    pair.check();
    pair.close();
}

// Inline results.

#[test]
fn write_06_makes_one_completion_for_each_success() {
    let pair = Pair::new(QpSize { initiators: 64, ..QpSize::default() });
    let mut rng = Rng::new(seed(), 6);
    let is_silent = |request: u64| request % 5 == 3;
    for round in 0..4 {
        for request in round * 50..round * 50 + 50 {
            let (len, flags) = (rng.below(900) as u32, if is_silent(request) { SILENT } else { 0 });
            pair.post(request, rng.below(20_000) as usize, len, 100 + 1_000 * (request % 50) as usize, flags);
        }
        pair.succeed((round * 50..round * 50 + 50).filter(|request| !is_silent(*request)));
        // Nothing comes behind them.
        pair.check();
    }
    pair.close();
}

#[test]
fn write_07_that_fails_makes_no_completion_takes_no_slot_and_moves_nothing() {
    let pair = Pair::new(QpSize::default());
    let depth = u64::from(pair.size.initiators);
    let fetched = pair.counter(0, Counter::WqesFetched);
    for (what, status, fail) in FAILURES {
        for _ in 0..=depth {
            assert_eq!(fail(&pair), status, "{what}");
        }
    }
    pair.check();
    // The whole depth is there, and more fail.
    for request in 0..depth {
        pair.post(request, request as usize, 30, 100 * request as usize, DEFER);
    }
    for _ in 0..=depth {
        assert_eq!(pair.try_post(99, 0, 8, 50_000, 0), FULL);
    }
    pair.succeed(0..depth);
    pair.check();
    assert_eq!(u64::from(pair.counter(0, Counter::WqesFetched) - fetched), depth, "requests that the card has seen");
    pair.close();
}

#[test]
fn write_08_fails_without_a_connection() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let qps = ends.map(|end| bench.qp(end.pd, end.receive_cq, end.initiator_cq, QpSize::default()));
    let slots: [_; 6] = std::array::from_fn(|_| bench.slot());
    let check_posts = |expected: [NTSTATUS; 2], when: &str| {
        // choice: the connection is what is looked at first, so bad flags and too many entries change nothing.
        let bad = [NDK_SGE::default(); 9];
        for (qp, expected) in qps.iter().zip(expected) {
            assert_eq!(write(*qp, 8, &[], 0, 0, 0), expected, "{when}");
            if expected != SUCCESS {
                assert_eq!(write(*qp, 8, &bad, 0, 0, 1 << 31), expected, "{when}");
            }
        }
    };
    let none = [CONNECTION_INVALID; 2];
    check_posts(none, "new");

    let mut listener = null_mut();
    let [passive_ip, active_ip] = [1, 0].map(|side: usize| bench.sides[side].ip);
    let listen = bench.sides[1].adapter;
    assert_eq!(
        ndk!(listen, NdkCreateListener(Some(on_requested), slots[0].context(), Some(on_created), slots[1].context(), &mut listener)),
        SUCCESS
    );
    let ((to, to_bytes), (from, from_bytes)) = (sockaddr((passive_ip, 4_000).into()), sockaddr((active_ip, 0).into()));
    assert_eq!(ndk!(listener, NdkListen(to.as_ptr().cast(), to_bytes, Some(on_done), slots[1].context())), SUCCESS);
    let mut active = null_mut();
    assert_eq!(ndk!(bench.sides[0].adapter, NdkCreateConnector(Some(on_created), slots[2].context(), &mut active)), SUCCESS);
    let (from, to) = (from.as_ptr().cast(), to.as_ptr().cast());
    let status = ndk!(active, NdkConnect(qps[0], from, from_bytes, to, to_bytes, 0, 0, null_mut(), 0, Some(on_done), slots[2].context()));
    assert_eq!(status, PENDING);
    check_posts(none, "connecting");
    let Call::Requested(passive) = bench.wait("a connect event", || slots[0].calls().first().copied()) else { unreachable!() };
    let passive = passive as *mut NDK_CONNECTOR;
    check_posts(none, "requested");
    let status = ndk!(passive, NdkAccept(qps[1], 0, 0, null_mut(), 0, None, null_mut(), Some(on_done), slots[3].context()));
    assert_eq!(status, PENDING);
    check_posts(none, "accepting");
    assert_eq!(bench.done(PENDING, slots[2]), SUCCESS);
    bench.settle();
    check_posts(none, "accepted and not completed");
    // choice: from the completion of the connection on, each side for itself, requests can be posted.
    assert_eq!(ndk!(active, NdkCompleteConnect(None, null_mut(), Some(on_done), slots[4].context())), PENDING);
    check_posts(none, "completing");
    assert_eq!(bench.done(PENDING, slots[4]), SUCCESS);
    assert_eq!(bench.done(PENDING, slots[3]), SUCCESS);
    ends.iter().for_each(|end| assert_eq!(bench.take(end.initiator_cq, 1), []));
    check_posts([SUCCESS; 2], "connected");
    ends.iter().for_each(|end| check(&bench.reap(end.initiator_cq, 1), QpSize::default().context, WRITE, SUCCESS, [8]));

    let connected = Connected { qps, connectors: [active, passive], events: [slots[5]; 2], listener };
    close_connected(&bench, &connected);
    ends.into_iter().for_each(|end| end.close(&bench));
    bench.close();
}

#[test]
fn write_09_takes_the_whole_depth_and_not_one_more() {
    let mut pair = Pair::new(QpSize { initiators: 0, ..QpSize::default() });
    // choice: a depth of 0 can be had, and is always full.
    assert_eq!(pair.try_post(0, 0, 8, 0, 0), FULL);
    for depth in [1, 2, 5, 16, 512] {
        pair.size.initiators = depth;
        pair.reconnect();
        let depth = u64::from(depth);
        for first in [0, depth, 2 * depth] {
            for request in first..first + depth {
                pair.post(request, request as usize, 9, 20 * (request % depth) as usize, DEFER);
            }
            assert_eq!(pair.try_post(9_999, 0, 8, 50_000, 0), FULL, "one more than {depth}");
            pair.succeed([first]);
            // A completion that was taken has freed its slot, whether others are done or not.
            pair.post(first + depth, 5, 9, 20_000, 0);
            pair.succeed(first + 1..=first + depth);
            pair.check();
        }
    }
    pair.close();
}

#[test]
fn write_10_takes_as_many_entries_as_the_qp_was_made_for() {
    let mut pair = Pair::new(QpSize::default());
    let info = pair.bench.info(0);
    assert!(info.MaxReadRequestSge < info.MaxInitiatorRequestSge, "writes have a limit of their own");
    for limit in 0..=info.MaxInitiatorRequestSge {
        pair.size.initiator_sges = limit;
        pair.reconnect();
        let entries: Vec<_> = (0..=limit as usize).map(|number| pair.source.sge(700 * number, 100 + number as u32)).collect();
        let whole = &entries[..limit as usize];
        let (to, token) = (pair.sink.va(50), pair.sink.token);
        assert_eq!(pair.bench.write(pair.qp(), 1, &entries, to, token, 0), TOO_MANY_SGES, "{limit} and one more");
        // choice: an empty entry counts.
        assert_eq!(pair.bench.write(pair.qp(), 1, &vec![NDK_SGE::default(); entries.len()], to, token, 0), TOO_MANY_SGES);
        assert_eq!(write_counted(pair.qp(), &entries, u32::MAX), TOO_MANY_SGES);
        assert_eq!(pair.bench.write(pair.qp(), 2, whole, to, token, 0), SUCCESS, "{limit} entries");
        pair.written(50, &gathered(&pair.source, whole));
        pair.succeed([2]);
    }
    pair.check();
    pair.close();
}

#[test]
fn write_11_of_more_bytes_than_the_adapter_transfers_fails() {
    let mut pair = Pair::new(QpSize { initiator_sges: 6, ..QpSize::default() });
    let most = pair.bench.info(0).MaxTransferLength;
    let post = |pair: &Pair, lens: &[u32]| {
        let list: Vec<_> = lens.iter().map(|len| pair.source.sge(0, *len)).collect();
        pair.bench.write(pair.qp(), 1, &list, pair.sink.va(0), pair.sink.token, 0)
    };
    // choice: inline, with BUFFER_OVERFLOW.
    for lens in [&[most + 1][..], &[most, 1], &[1, most], &[most / 2, most / 2, 1], &[most / 2, 1, most / 2 - 1, 1]] {
        assert_eq!(post(&pair, lens), TOO_LONG, "{lens:x?}");
    }
    pair.check();
    // Exactly the limit is no matter of length any more: what is wrong with it is that the region is shorter.
    for lens in [&[most][..], &[most / 2, most / 2]] {
        assert_eq!(post(&pair, lens), SUCCESS, "{lens:x?}");
        let entry = pair.bench.reap(pair.ends[0].initiator_cq, 1)[0];
        assert_eq!((entry.request, entry.status), (1, ACCESS_VIOLATION));
        pair.reconnect();
    }
    pair.check();
    pair.close();
}

#[test]
fn write_12_adds_lengths_up_in_more_than_32_bits() {
    let pair = Pair::new(QpSize { initiator_sges: 6, inline_bytes: 96, ..QpSize::default() });
    // Sums of 32 bits would be 0, 1, 64 and 0x7FFF_FFFF: all of them short enough.
    let sums = [
        vec![1 << 31, 1 << 31],
        vec![1 << 30; 4],
        vec![u32::MAX, 1],
        vec![u32::MAX, 2],
        vec![u32::MAX, 65],
        vec![u32::MAX, u32::MAX, 66],
        vec![u32::MAX, 0x8000_0000],
        vec![0xC000_0000, 0xC000_0000, 0x8000_0000],
        vec![u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX, 5],
    ];
    for lens in sums {
        let list: Vec<_> = lens.iter().map(|len| pair.source.sge(0, *len)).collect();
        for flags in [0, INLINE, DEFER, INLINE | SILENT] {
            assert_eq!(pair.bench.write(pair.qp(), 1, &list, pair.sink.va(0), pair.sink.token, flags), TOO_LONG, "{lens:x?}, {flags:#x}");
        }
    }
    pair.post(7, 0, 8, 8, 0);
    pair.succeed([7]);
    pair.check();
    pair.close();
}

#[test]
fn write_13_takes_as_many_inline_bytes_as_the_qp_was_made_for() {
    let mut pair = Pair::new(QpSize::default());
    assert_eq!(pair.bench.info(0).MaxInlineDataSize, 96);
    for limit in [0, 1, 31, 32, 33, 40, 95, 96] {
        pair.size.inline_bytes = limit;
        pair.reconnect();
        let bytes = pair.source.read(3, limit as usize + 1);
        // choice: inline, with BUFFER_OVERFLOW.
        assert_eq!(pair.inline(1, &bytes, 77, 0), TOO_LONG, "{limit} and one more");
        assert_eq!(pair.inline(1, &pair.source.read(0, 4_096), 77, 0), TOO_LONG);
        assert_eq!(pair.inline(2, &bytes[..limit as usize], 77, 0), SUCCESS, "{limit} bytes");
        pair.succeed([2]);
        // The limit is one of inline data alone.
        pair.post(3, 9, 3_000, 300, 0);
        pair.succeed([3]);
    }
    pair.check();
    pair.close();
}

#[test]
fn write_14_fails_for_each_flag_that_writes_do_not_have() {
    let pair = Pair::new(QpSize::default());
    let known = SILENT | FENCE | INLINE | DEFER;
    // choice: every other bit is refused, also those that other requests have.
    for bit in (0..32).map(|shift| 1u32 << shift).filter(|bit| bit & known == 0) {
        for flags in [bit, bit | SILENT, bit | INLINE, bit | DEFER, bit | known, !known] {
            assert_eq!(pair.try_post(1, 0, 8, 0, flags), INVALID_PARAMETER, "{flags:#x}");
        }
    }
    pair.check();
    pair.post(2, 0, 8, 0, 0);
    pair.succeed([2]);
    pair.check();
    pair.close();
}

#[test]
fn write_15_that_fails_hands_over_what_was_deferred() {
    let mut pair = Pair::new(QpSize::default());
    let defer_two = |pair: &Pair| {
        pair.post(1, 10, 100, 100, DEFER);
        pair.post(2, 20, 100, 300, DEFER);
        rest(&pair.bench);
        assert_eq!(take(pair.ends[0].initiator_cq, 1), [], "the doorbell is held back");
    };
    // choice: calls of operations that the card does not execute are initiator calls that fail, so they do it as well.
    for (what, status, fail) in FAILURES {
        defer_two(&pair);
        assert_eq!(fail(&pair), status, "{what}");
        pair.succeed([1, 2]);
    }
    // Full of deferred ones.
    pair.size.initiators = 2;
    pair.reconnect();
    defer_two(&pair);
    assert_eq!(pair.try_post(3, 0, 8, 0, DEFER), FULL);
    pair.succeed([1, 2]);
    pair.check();
    // Of a QP that is not connected any more they are cancelled.
    defer_two(&pair);
    ndk!(pair.qp(), NdkFlush());
    assert_eq!(pair.try_post(3, 0, 8, 0, 0), CONNECTION_INVALID);
    check(&pair.bench.reap(pair.ends[0].initiator_cq, 2), pair.size.context, WRITE, CANCELLED, [1, 2]);
    pair.check();
    pair.close();
}

#[test]
fn write_16_that_fails_leaves_earlier_and_later_ones_alone() {
    let pair = Pair::new(QpSize::default());
    for (number, (what, status, fail)) in FAILURES.into_iter().enumerate() {
        pair.post(1, 77 * number, 9_000, 100, 0);
        // Some while it is under way, some when it is done, so that each of the calls meets both.
        (0..number % 4).for_each(|_| pair.bench.step());
        assert_eq!(fail(&pair), status, "{what}");
        pair.post(2, 55 * number, 500, 20_000, SILENT);
        assert_eq!(fail(&pair), status, "{what}");
        pair.post(3, 33 * number, 600, 30_000, 0);
        pair.succeed([1, 3]);
        pair.check();
    }
    pair.close();
}

// Flags.

#[test]
fn write_17_takes_the_documented_flags_by_their_numbers() {
    let pair = Pair::new(QpSize::default());
    pair.post(1, 100, 200, 0, 0x1);
    pair.post(2, 200, 200, 300, 0x2);
    pair.succeed([2]);
    pair.post(3, 300, 200, 600, 0x200);
    rest(&pair.bench);
    assert_eq!(take(pair.ends[0].initiator_cq, 1), []);
    pair.post(4, 400, 200, 900, 0x203);
    pair.post(5, 500, 200, 1_200, 0x3);
    pair.succeed([3]);
    pair.check();
    pair.close();
}

#[test]
fn write_18_takes_inline_data() {
    // choice: INLINE is one of a write's flags though its page does not list it.
    let pair = Pair::new(QpSize::default());
    let sge = |bytes: &[u8], token| NDK_SGE { Address: bytes.as_ptr() as u64, Length: bytes.len() as u32, MemoryRegionToken: token };
    // Neither of a region nor known to the card.
    let bytes = *b"from the stack";
    assert_eq!(pair.bench.write(pair.qp(), 1, &[sge(&bytes, 0)], pair.sink.va(33), pair.sink.token, 0x40), SUCCESS);
    pair.written(33, &bytes);
    pair.succeed([1]);
    pair.check();
    pair.close();
}

#[test]
fn write_19_copies_inline_data_of_any_number_of_pieces_and_looks_at_no_token() {
    let pair = Pair::new(QpSize { inline_bytes: 96, ..QpSize::default() });
    let mut bytes: Vec<u8> = (1..=96).collect();
    let pieces = |bytes: &[u8], len: usize| -> Vec<NDK_SGE> {
        let piece = |(number, part): (usize, &[u8])| {
            // No region's, one of another kind of memory, and the sink's, which is none of this side.
            let token = [0xBAD, pair.source.token, pair.sink.token][number % 3];
            NDK_SGE { Address: part.as_ptr() as u64, Length: part.len() as u32, MemoryRegionToken: token }
        };
        bytes.chunks(len).enumerate().map(piece).collect()
    };
    let (to, token) = (pair.sink.va(64), pair.sink.token);
    for (request, len) in (0..).zip([1, 2, 5, 33, 95, 96]) {
        let mut list = pieces(&bytes, len);
        // An empty piece may have any address.
        list.insert(list.len() / 2, NDK_SGE { Address: 0, Length: 0, MemoryRegionToken: 0 });
        assert_eq!(pair.bench.write(pair.qp(), request, &list, to + 100 * request, token, INLINE | DEFER), SUCCESS, "pieces of {len}");
        pair.written(64 + 100 * request as usize, &bytes);
        // Before the card is told.
        bytes.iter_mut().for_each(|byte| *byte = byte.rotate_left(3) ^ 0x55);
    }
    // No bytes: without a list, with empty pieces, and with more of them than any QP has.
    assert_eq!(pair.bench.write(pair.qp(), 6, &[], to, 0, INLINE), SUCCESS);
    assert_eq!(ndk!(pair.qp(), NdkWrite(7 as PVOID, null(), 0, 0, 0, INLINE)), SUCCESS);
    assert_eq!(pair.bench.write(pair.qp(), 8, &[NDK_SGE::default(); 1_000], to, 0, INLINE), SUCCESS);
    pair.succeed(0..9);
    pair.check();
    pair.close();
}

#[test]
fn write_20_with_a_read_fence_does_not_wait_for_reads_that_there_can_not_be() {
    // choice: the card executes no reads, so there is none to wait for; NdkRead fails inline and leaves nothing behind.
    let pair = Pair::new(QpSize::default());
    let (sge, to) = (pair.source.sge(0, 64), pair.sink.va(0));
    for request in 0..8 {
        let read = ndk!(pair.qp(), NdkRead(99 as PVOID, &sge, 1, to, pair.sink.token, 0));
        assert_eq!(read, NOT_SUPPORTED);
        pair.post(request, 10 * request as usize, 3_000, 4_000 * request as usize, FENCE | if request % 2 == 0 { 0 } else { DEFER });
    }
    pair.post(8, 0, 8, 40_000, FENCE);
    pair.succeed(0..9);
    pair.check();
    pair.close();
}

#[test]
fn write_21_without_a_read_fence_does_not_wait_either() {
    let pair = Pair::new(QpSize::default());
    // As long as one with a fence, to the clock: nothing but reads would make a difference.
    let mut clocks = Vec::new();
    for flags in [0, FENCE, 0, FENCE] {
        assert_eq!(ndk!(pair.qp(), NdkRead(99 as PVOID, &pair.source.sge(0, 64), 1, pair.sink.va(0), pair.sink.token, 0)), NOT_SUPPORTED);
        let start = pair.bench.world.clock();
        pair.post(1, 0, 10_000, 100, flags);
        pair.bench.wait("a write", || match take(pair.ends[0].initiator_cq, 1)[..] {
            [] => None,
            _ => Some(()),
        });
        clocks.push(pair.bench.world.clock() - start);
        rest(&pair.bench);
    }
    assert!(clocks.iter().max().unwrap() - clocks.iter().min().unwrap() <= 200, "with and without a fence: {clocks:?}");
    pair.check();
    pair.close();
}

#[test]
fn write_22_that_is_deferred_waits_for_one_that_is_not() {
    // choice: the doorbell is held back, without a bound, which NDKPI allows and does not ask for.
    let pair = Pair::new(QpSize::default());
    let fetched = pair.counter(0, Counter::WqesFetched);
    for request in 0..10 {
        pair.post(request, 100 + request as usize, 200, 300 * request as usize, DEFER);
    }
    pair.bench.settle();
    assert_eq!(pair.counter(0, Counter::WqesFetched), fetched);
    assert_eq!(pair.sink.read(0, 5_000), [CANARY; 5_000]);
    assert_eq!(take(pair.ends[0].initiator_cq, 1), []);
    pair.post(10, 0, 10, 10_000, 0);
    pair.succeed(0..11);
    pair.check();
    assert_eq!(pair.counter(0, Counter::WqesFetched) - fetched, 11);
    pair.close();
}

#[test]
fn write_23_without_defer_shows_everything_that_was_held() {
    let pair = Pair::new(QpSize::default());
    for first in [0, 16, 32] {
        for request in first..first + 15 {
            pair.post(request, 100 * request as usize, 90, 100 * (request - first) as usize, DEFER);
        }
        // Of no bytes, silent, or by inline data: what counts is that it is not deferred.
        match first {
            0 => pair.post(15, 0, 0, 0, 0),
            16 => assert_eq!(pair.inline(31, b"x", 5_000, 0), SUCCESS),
            _ => pair.post(47, 1, 1, 6_000, SILENT),
        }
        pair.succeed(first..first + if first == 32 { 15 } else { 16 });
        pair.check();
    }
    pair.close();
}

#[test]
fn write_24_that_is_silent_tells_nothing_but_failure_and_cancellation() {
    let mut pair = Pair::new(QpSize::default());
    let end = pair.ends[0];
    ndk!(end.initiator_cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    for request in 0..10 {
        pair.post(request, 0, 500, 600 * request as usize, SILENT);
    }
    pair.check();
    assert_eq!(end.initiated.calls(), [], "a notification of silent success");
    // A failure, and what is cancelled by it.
    let (sge, to) = (pair.source.sge(0, 100), pair.sink.va(20_000));
    assert_eq!(pair.bench.write(pair.qp(), 10, &[sge], to, pair.sink.token ^ 0x80, SILENT), SUCCESS);
    assert_eq!(pair.bench.write(pair.qp(), 11, &[sge], to, pair.sink.token, SILENT), SUCCESS);
    let entries = pair.bench.reap(end.initiator_cq, 2);
    assert_eq!(entries.iter().map(|entry| (entry.request, entry.status)).collect::<Vec<_>>(), [(10, ACCESS_VIOLATION), (11, CANCELLED)]);
    pair.bench.settle();
    assert_eq!(end.initiated.calls(), [Call::Notified(SUCCESS)]);
    // A cancellation by the consumer itself.
    pair.reconnect();
    ndk!(end.initiator_cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    (0..5).for_each(|request| assert_eq!(pair.try_post(request, 0, 50, 20_000, SILENT | DEFER), SUCCESS));
    ndk!(pair.qp(), NdkFlush());
    check(&pair.bench.reap(end.initiator_cq, 5), pair.size.context, WRITE, CANCELLED, 0..5);
    pair.bench.settle();
    assert_eq!(end.initiated.count(), 2);
    pair.check();
    pair.close();
}

#[test]
fn write_25_takes_all_combinations_of_flags() {
    let mut pair = Pair::new(QpSize { initiators: 64, inline_bytes: 96, ..QpSize::default() });
    let bits = |number: u32| [SILENT, FENCE, DEFER, INLINE].iter().enumerate().map(|(bit, flag)| (number >> bit & 1) * flag).sum::<u32>();
    for len in [0, 1, 50] {
        // Each alone, closed by a plain one; then all of them in one chain.
        for flags in (0..16).map(bits) {
            pair.post_either(1, 40, len, 100, flags);
            pair.post(2, 0, 20, 300, 0);
            pair.succeed((1..3).skip((flags & SILENT) as usize));
        }
        for number in 0..16 {
            pair.post_either(number.into(), 100 + 60 * number as usize, len, 1_000 + 70 * number as usize, bits(number) | DEFER);
        }
        pair.post(16, 0, 20, 600, 0);
        pair.succeed((0..=16).filter(|number| bits(*number as u32) & SILENT == 0));
        pair.check();
    }
    // One that the peer refuses, and the one behind it, have entries whatever their flags say.
    let post = |pair: &Pair, request: u64, flags: u32, token: u32| {
        let sge = NDK_SGE { Address: pair.source.va(7), Length: 50, MemoryRegionToken: pair.source.token };
        assert_eq!(write(pair.qp(), request, &[sge], pair.sink.va(9_000), token, flags), SUCCESS);
    };
    for flags in (0..16).map(bits) {
        post(&pair, 1, flags, pair.sink.token ^ 1);
        post(&pair, 2, flags, pair.sink.token);
        // Rings for them, if it is needed.
        ndk!(pair.qp(), NdkSend(0x99 as PVOID, null(), 0, 0));
        let entries = pair.bench.reap(pair.ends[0].initiator_cq, 2);
        check(&entries[..1], pair.size.context, WRITE, ACCESS_VIOLATION, [1]);
        check(&entries[1..], pair.size.context, WRITE, CANCELLED, [2]);
        pair.reconnect();
    }
    // And all of them if they are flushed while nothing comes through.
    pair.bench.world.lose(0, |_| true);
    (0..16).for_each(|number| post(&pair, number, bits(number as u32), pair.sink.token));
    (0..8).for_each(|_| pair.bench.step());
    ndk!(pair.qp(), NdkFlush());
    check(&pair.bench.reap(pair.ends[0].initiator_cq, 16), pair.size.context, WRITE, CANCELLED, 0..16);
    pair.bench.world.lose_none(0);
    pair.check();
    pair.close();
}

// The local side.

#[test]
fn write_26_takes_logical_addresses_with_the_privileged_token() {
    let mut pair = Pair::new(QpSize { initiator_sges: 6, ..QpSize::default() });
    let mut token = 0;
    ndk!(pair.ends[0].pd, NdkGetPrivilegedMemoryRegionToken(&mut token));
    assert_ne!(token, 0);
    let mappings = pair.bench.sides[0].card.mappings();
    // Unaligned buffers over one to six pages, by one MDL or by two that follow each other.
    for (request, (from, len, parts)) in
        (0..).zip([(1, 1, 1), (4_000, 200, 1), (77, 10_000, 2), (4_097, 4_096, 1), (333, 5 * PAGE_SIZE - 17, 2)])
    {
        let lam = Lam::new(&pair, from, len, parts);
        let list = lam.sges(token);
        assert_eq!(pair.bench.write(pair.qp(), request, &list, pair.sink.va(1_001), pair.sink.token, 0), SUCCESS);
        pair.written(1_001, &pair.source.read(from, len));
        pair.succeed([request]);
        // Together with virtual addresses of a region.
        let mixed = [pair.source.sge(9, 10), NDK_SGE { Length: list[0].Length.min(5), ..list[0] }, pair.source.sge(5, 3)];
        assert_eq!(pair.bench.write(pair.qp(), request, &mixed, pair.sink.va(50), pair.sink.token, 0), SUCCESS);
        let middle = pair.source.read(from, mixed[1].Length as usize);
        pair.written(50, &[pair.source.read(9, 10), middle, pair.source.read(5, 3)].concat());
        pair.succeed([request]);
        pair.check();
        lam.release(&pair);
        let card = &pair.bench.sides[0].card;
        pair.bench.wait("the mapping that was released to be gone", || (card.mappings() == mappings).then_some(()));
    }
    // The privileged token of one domain is none of another.
    let lam = Lam::new(&pair, 0, 100, 1);
    let other = pair.bench.pd(0);
    ndk!(other, NdkGetPrivilegedMemoryRegionToken(&mut token));
    let sge = lam.sges(token)[0];
    fails(&mut pair, "a privileged token of another domain", None, |pair| (sge, pair.sink.va(0), pair.sink.token));
    lam.release(&pair);
    close!(pair.bench, other => NdkClosePd);
    pair.check();
    pair.close();
}

#[test]
fn write_27_needs_no_more_than_local_read() {
    let pair = Pair::new(QpSize::default());
    for (request, flags) in (0..).zip([NDK_MR_FLAG_ALLOW_LOCAL_READ, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_RDMA_READ_SINK]) {
        let region = pair.bench.region(pair.ends[0].pd, 300, flags);
        let bytes = pair.source.read(1_000 * request as usize, 300);
        region.fill(0, &bytes);
        // With the local token, which this provider gives the remote one's value.
        let sge = NDK_SGE { MemoryRegionToken: ndk!(region.mr, NdkGetLocalTokenFromMr()), ..region.sge(0, 300) };
        assert_eq!(pair.bench.write(pair.qp(), request, &[sge], pair.sink.va(500), pair.sink.token, 0), SUCCESS);
        pair.written(500, &bytes);
        pair.succeed([request]);
        pair.check();
        close!(pair.bench, region.mr => NdkCloseMr);
    }
    pair.close();
}

#[test]
fn write_28_gathers_in_the_order_of_the_entries() {
    let pair = Pair::new(QpSize { initiator_sges: 6, initiators: 64, ..QpSize::default() });
    let second = pair.bench.region(pair.ends[0].pd, 10_000, NDK_MR_FLAG_ALLOW_LOCAL_READ);
    second.fill(0, &noise(28, 10_000));
    let mut rng = Rng::new(seed(), 28);
    for request in 0..40 {
        // From both regions, up and down, overlapping, and some twice.
        let mut list = Vec::new();
        let mut bytes = Vec::new();
        for number in 0..1 + rng.below(6) {
            let region = if rng.percent(50) { &pair.source } else { &second };
            let (from, len) = (rng.below(5_000) as usize, rng.below(if number == 0 { 5_000 } else { 200 }) as usize);
            list.push(region.sge(from, len as u32));
            bytes.extend(region.read(from, len));
        }
        if list.len() < 6 {
            list.push(list[0]);
            bytes.extend_from_within(..list[0].Length as usize);
        }
        let to = rng.below(50_000) as usize;
        assert_eq!(pair.bench.write(pair.qp(), request, &list, pair.sink.va(to), pair.sink.token, 0), SUCCESS);
        pair.written(to, &bytes);
    }
    pair.succeed(0..40);
    pair.check();
    close!(pair.bench, second.mr => NdkCloseMr);
    pair.close();
}

#[test]
fn write_29_of_no_bytes_is_done_like_any_other() {
    let pair = Pair::new(QpSize::default());
    let empty = NDK_SGE { Address: 0xDEAD, Length: 0, MemoryRegionToken: 0xBAD };
    assert_eq!(ndk!(pair.qp(), NdkWrite(0 as PVOID, null(), 0, pair.sink.va(0), pair.sink.token, 0)), SUCCESS);
    assert_eq!(pair.bench.write(pair.qp(), 1, &[empty], pair.sink.va(0), pair.sink.token, 0), SUCCESS);
    assert_eq!(pair.bench.write(pair.qp(), 2, &[empty; 2], pair.sink.va(0), pair.sink.token, DEFER), SUCCESS);
    pair.post(3, 0, 0, pair.sink.len(), FENCE);
    // An empty entry beside one with bytes takes part in nothing.
    assert_eq!(pair.bench.write(pair.qp(), 4, &[empty, pair.source.sge(3, 4)], pair.sink.va(9), pair.sink.token, 0), SUCCESS);
    assert_eq!(pair.bench.write(pair.qp(), 5, &[pair.source.sge(3, 4), empty], pair.sink.va(19), pair.sink.token, 0), SUCCESS);
    pair.written(9, &pair.source.read(3, 4));
    pair.written(19, &pair.source.read(3, 4));
    pair.post(6, 0, 0, 0, SILENT);
    pair.succeed(0..6);
    // An entry that can't be read at all is one that there is not.
    assert_eq!(write_counted(pair.qp(), &[], 1), INVALID_PARAMETER);
    pair.check();
    pair.close();
}

#[test]
fn write_30_from_memory_that_the_token_does_not_name_fails() {
    // choice: the card finds it, so the post succeeds and the completion fails.
    let mut pair = Pair::new(QpSize::default());
    let pd = pair.ends[0].pd;
    type Spoil = fn(&Pair) -> NDK_SGE;
    let cases: [(&str, Spoil); 7] = [
        ("a token that differs in its lowest bit", |pair| NDK_SGE { MemoryRegionToken: pair.source.token ^ 1, ..pair.source.sge(0, 100) }),
        ("the token 0", |pair| NDK_SGE { MemoryRegionToken: 0, ..pair.source.sge(0, 100) }),
        ("a token beyond all regions", |pair| NDK_SGE { MemoryRegionToken: u32::MAX, ..pair.source.sge(0, 100) }),
        ("one byte behind the region", |pair| pair.source.sge(pair.source.len() - 99, 100)),
        ("one byte in front of the region", |pair| NDK_SGE { Address: pair.source.va(0) - 1, ..pair.source.sge(0, 100) }),
        ("an address that wraps", |pair| NDK_SGE { Address: u64::MAX - 50, ..pair.source.sge(0, 100) }),
        ("a length that wraps", |pair| pair.source.sge(1, 1 << 31)),
    ];
    for (what, spoil) in cases {
        fails(&mut pair, what, None, |pair| (spoil(pair), pair.sink.va(20_000), pair.sink.token));
    }
    // One of several, of which those in front of it are right: nothing is sent of them either. From the third on they are in a second unit.
    pair.size.initiator_sges = 6;
    pair.reconnect();
    let foreign_pd = pair.bench.pd(0);
    let foreign = pair.bench.region(foreign_pd, 4_096, NDK_MR_FLAG_ALLOW_LOCAL_READ);
    for bad in [1, 2, 5] {
        let spoils: [Spoil; 2] = [cases[0].1, cases[3].1];
        for spoil in spoils.map(Some).into_iter().chain([None]) {
            fails_list(&mut pair, "one entry of six", None, |pair| {
                let mut list: Vec<_> = (0..6).map(|number| pair.source.sge(300 * number, 70)).collect();
                list[bad] = spoil.map_or_else(|| foreign.sge(0, 70), |spoil| spoil(pair));
                (list, pair.sink.va(20_000), pair.sink.token)
            });
        }
    }
    close!(pair.bench, foreign.mr => NdkCloseMr, foreign_pd => NdkClosePd);
    let other = pair.bench.pd(0);
    let foreign = pair.bench.region(other, 4_096, NDK_MR_FLAG_ALLOW_LOCAL_READ);
    fails(&mut pair, "a region of another domain", None, |pair| (foreign.sge(0, 100), pair.sink.va(20_000), pair.sink.token));
    let gone = pair.bench.region(pd, 4_096, NDK_MR_FLAG_ALLOW_LOCAL_READ);
    let slot = pair.bench.slot();
    assert_eq!(pair.bench.done(ndk!(gone.mr, NdkDeregisterMr(Some(on_done), slot.context())), slot), SUCCESS);
    fails(&mut pair, "a region that was deregistered", None, |pair| (gone.sge(0, 100), pair.sink.va(20_000), pair.sink.token));
    let fast = fast_region(&pair.bench, pd);
    let sge = NDK_SGE { MemoryRegionToken: ndk!(fast, NdkGetLocalTokenFromMr()), ..pair.source.sge(0, 100) };
    fails(&mut pair, "a fast region that was not registered", None, |pair| (sge, pair.sink.va(20_000), pair.sink.token));
    close!(pair.bench, foreign.mr => NdkCloseMr, gone.mr => NdkCloseMr, fast => NdkCloseMr, other => NdkClosePd);
    pair.check();
    pair.close();
}

#[test]
fn write_31_leaves_its_source_as_it_is() {
    let mut pair = Pair::new(QpSize { initiators: 64, ..QpSize::default() });
    // With all rights, so that nothing but the card's will keeps it from being written.
    let all = NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_RDMA_READ_SINK;
    let source = pair.bench.region(pair.ends[0].pd, 30_000, all);
    let bytes = noise(31, 30_000);
    source.fill(0, &bytes);
    for request in 0..40 {
        let (from, len) = (37 * request as usize, 300 * request as u32 + 1);
        assert_eq!(pair.bench.write(pair.qp(), request, &[source.sge(from, len)], pair.sink.va(11), pair.sink.token, 0), SUCCESS);
        pair.written(11, &bytes[from..from + len as usize]);
    }
    pair.succeed(0..40);
    // One that fails, and one that is cancelled.
    let sge = source.sge(100, 20_000);
    fails(&mut pair, "a token that is none", Some(REMOTE_ACCESS), |pair| (sge, pair.sink.va(0), pair.sink.token ^ 1));
    assert_eq!(pair.bench.write(pair.qp(), 0, &[sge], pair.sink.va(40_000), pair.sink.token, 0), SUCCESS);
    pair.bench.step();
    ndk!(pair.qp(), NdkFlush());
    pair.bench.reap(pair.ends[0].initiator_cq, 1);
    pair.bench.settle();
    pair.adopt(40_000, 20_000);
    pair.check();
    assert!(source.read(0, 30_000) == bytes, "the source has changed");
    close!(pair.bench, source.mr => NdkCloseMr);
    pair.close();
}

#[test]
fn write_32_takes_any_address_and_any_length() {
    let pair = Pair::new(QpSize { initiators: 64, ..QpSize::default() });
    let around = |edge: usize| edge - 2..=edge + 2;
    let lens: Vec<usize> = (1..=9)
        .chain(around(64))
        .chain(around(128))
        .chain([255, 1_000])
        .chain(around(MAX_MTU))
        .chain(around(2 * MAX_MTU))
        .chain([12_345])
        .collect();
    let mut rng = Rng::new(seed(), 32);
    for alignment in [0, 1, 3, 63, 4_095, 4_081] {
        for (request, len) in (0..).zip(&lens) {
            // Of the source this alignment, of the sink any.
            let from = (PAGE_SIZE - pair.source.va(0) as usize % PAGE_SIZE) + alignment;
            pair.post(request, from, *len as u32, rng.below(50_000) as usize, 0);
        }
        pair.succeed(0..lens.len() as u64);
        pair.check();
    }
    pair.close();
}

// The remote side.

#[test]
fn write_33_goes_to_the_very_address() {
    let mut pair = Pair::new(QpSize { initiators: 64, ..QpSize::default() });
    let end = pair.sink.len();
    // Everywhere in a line and at the edges of lines and pages, the first and the last byte, and the region as a whole.
    let places = (0..65).step_by(4).chain([4_031, 4_095, 4_096, 4_097, 20_001]);
    for (request, to) in (0..).zip(places) {
        pair.post(request, 100 * request as usize, 33, to, 0);
    }
    pair.succeed(0..22);
    pair.check();
    pair.post(22, 7, 1, 0, 0);
    pair.post(23, 8, 1, end - 1, 0);
    pair.post(24, 9, 300, end - 300, 0);
    pair.succeed(22..25);
    pair.check();
    pair.post(25, 0, end as u32, 0, 0);
    pair.succeed([25]);
    pair.check();
    // A byte further is refused, not put where there is room.
    for (what, offset, len) in [("behind the end", end - 99, 100), ("a wrapped address", usize::MAX - 50, 100)] {
        fails(&mut pair, what, Some(REMOTE_ACCESS), |pair| {
            (pair.source.sge(0, len), pair.sink.va(0).wrapping_add(offset as u64), pair.sink.token)
        });
    }
    fails(&mut pair, "in front of the region", Some(REMOTE_ACCESS), |pair| (pair.source.sge(0, 100), pair.sink.va(0) - 1, pair.sink.token));
    pair.check();
    pair.close();
}

#[test]
fn write_34_carries_the_token_as_it_is() {
    let mut pair = Pair::new(QpSize::default());
    // Each token reaches the region whose it is, and no other.
    let regions: Vec<Region> = (0..8).map(|_| pair.bench.region(pair.ends[1].pd, 1_000, NDK_MR_FLAG_ALLOW_REMOTE_WRITE)).collect();
    for (request, region) in (0..).zip(&regions) {
        let sge = pair.source.sge(10 * request as usize, 50);
        assert_eq!(pair.bench.write(pair.qp(), request, &[sge], region.va(100), region.token, 0), SUCCESS);
    }
    pair.succeed(0..8);
    pair.bench.settle();
    for (number, region) in regions.iter().enumerate() {
        let expected = [vec![CANARY; 100], pair.source.read(10 * number, 50), vec![CANARY; 850]].concat();
        assert!(region.read(0, 1_000) == expected, "region {number}");
    }
    // Any bit counts.
    for bit in [0, 7, 8, 19, 31] {
        fails(&mut pair, "another token", Some(REMOTE_ACCESS), |pair| {
            (pair.source.sge(0, 10), pair.sink.va(0), pair.sink.token ^ 1 << bit)
        });
    }
    fails(&mut pair, "the bytes of the token the other way round", Some(REMOTE_ACCESS), |pair| {
        (pair.source.sge(0, 10), pair.sink.va(0), pair.sink.token.swap_bytes())
    });
    regions.into_iter().for_each(|region| close!(pair.bench, region.mr => NdkCloseMr));
    pair.check();
    pair.close();
}

#[test]
fn write_35_touches_no_other_byte() {
    let pair = Pair::new(QpSize { initiators: 256, ..QpSize::default() });
    // Each place in a line, with lengths around a line: one canary at least between any two.
    for round in 0..4 {
        let len = [1, 63, 64, 65][round];
        for place in 0..64usize {
            pair.post(place as u64, 31 * place + round, len, 200 * place + place, DEFER);
        }
        pair.post(64, 0, 0, 0, 0);
        pair.succeed(0..65);
        pair.check();
    }
    let mut rng = Rng::new(seed(), 35);
    for request in 0..50 {
        let len = rng.below(9_000);
        pair.post(request, rng.below(9_000) as usize, len as u32, rng.below(100_000) as usize, 0);
    }
    pair.succeed(0..50);
    pair.check();
    pair.close();
}

#[test]
fn write_36_shows_nothing_at_the_peer() {
    let pair = Pair::new(QpSize::default());
    let (end, qp) = (pair.ends[1], pair.connected.qps[1]);
    for request in 0..10u64 {
        assert_eq!(ndk!(qp, NdkReceive(request as PVOID, null(), 0)), SUCCESS);
    }
    for cq in [end.receive_cq, end.initiator_cq] {
        ndk!(cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    }
    for request in 0..16 {
        pair.post(request, 0, 3_000 * (request as u32 % 4), 3_100 * request as usize, 0);
    }
    pair.succeed(0..16);
    pair.check();
    assert_eq!((end.received.calls(), end.initiated.calls(), pair.connected.events[1].count()), (vec![], vec![], 0));
    // All receives are still there.
    ndk!(qp, NdkFlush());
    check(&pair.bench.reap(end.receive_cq, 10), pair.size.context, RECEIVE, CANCELLED, 0..10);
    pair.close();
}

#[test]
fn write_37_needs_the_right_of_remote_write() {
    let mut pair = Pair::new(QpSize::default());
    let pd = pair.ends[1].pd;
    let right = NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
    for flags in [right, right | NDK_MR_FLAG_ALLOW_REMOTE_READ, right | NDK_MR_FLAG_RDMA_READ_SINK, 0xF] {
        let region = pair.bench.region(pd, 500, flags);
        assert_eq!(pair.bench.write(pair.qp(), 1, &[pair.source.sge(0, 300)], region.va(100), region.token, 0), SUCCESS);
        pair.succeed([1]);
        pair.bench.settle();
        assert_eq!(region.read(0, 500), [vec![CANARY; 100], pair.source.read(0, 300), vec![CANARY; 100]].concat(), "flags {flags:#x}");
        close!(pair.bench, region.mr => NdkCloseMr);
    }
    // The right is two bits, and one of them is none.
    for flags in [0, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ, 0x4, NDK_MR_FLAG_RDMA_READ_SINK, 0xB] {
        let region = pair.bench.region(pd, 500, flags);
        let (to, token) = (region.va(100), region.token);
        fails(&mut pair, &format!("a region with {flags:#x}"), Some(REMOTE_ACCESS), |pair| (pair.source.sge(0, 300), to, token));
        assert_eq!(region.read(0, 500), [CANARY; 500], "flags {flags:#x}");
        close!(pair.bench, region.mr => NdkCloseMr);
    }
    // No right comes with the peer's privileged token, whatever it is taken to name.
    let mut token = 0;
    ndk!(pd, NdkGetPrivilegedMemoryRegionToken(&mut token));
    let lam = Lam::of(&pair.bench, 1, pair.sink.va(0), 100, 1);
    for to in [lam.sges(token)[0].Address, pair.sink.va(0)] {
        fails(&mut pair, "the privileged token", Some(REMOTE_ACCESS), |pair| (pair.source.sge(0, 50), to, token));
    }
    lam.release(&pair);
    // A fast region may be written when it was registered, and not before. Registering it is nothing that this card does.
    let fast = fast_region(&pair.bench, pd);
    let token = ndk!(fast, NdkGetRemoteTokenFromMr());
    fails(&mut pair, "a fast region that was not registered", Some(REMOTE_ACCESS), |pair| (pair.source.sge(0, 50), pair.sink.va(0), token));
    let other = pair.bench.pd(1);
    let foreign = pair.bench.region(other, 500, right);
    let (to, token) = (foreign.va(0), foreign.token);
    fails(&mut pair, "a region of another domain", Some(REMOTE_ACCESS), |pair| (pair.source.sge(0, 50), to, token));
    assert_eq!(foreign.read(0, 500), [CANARY; 500]);
    close!(pair.bench, fast => NdkCloseMr, foreign.mr => NdkCloseMr, other => NdkClosePd);
    pair.check();
    pair.close();
}

#[test]
fn write_38_that_the_peer_refuses_ends_its_connection_and_no_other() {
    let mut pair = Pair::new(QpSize::default());
    let bystander = pair.another(QpSize { context: 0xB75, ..QpSize::default() });
    let good = |pair: &Pair, request: u64| {
        let at = 60_000 + 10_000 * (request as usize % 4);
        let sge = pair.source.sge(at, 9_000);
        assert_eq!(pair.bench.write(bystander.qps[0], request, &[sge], pair.sink.va(at), pair.sink.token, 0), SUCCESS);
        pair.written(at, &pair.source.read(at, 9_000));
    };
    for (round, len) in (0..).zip([1, 100, 20_000]) {
        // Some of the other QP are under way when it happens.
        good(&pair, 10 * round);
        good(&pair, 10 * round + 1);
        let mut entries = fails(&mut pair, "a wrong token", Some(REMOTE_ACCESS), |pair| {
            (pair.source.sge(0, len), pair.sink.va(20_000), pair.sink.token ^ 4)
        });
        good(&pair, 10 * round + 2);
        entries.extend(pair.bench.reap(pair.ends[0].initiator_cq, 3 - entries.len()));
        check(&entries, 0xB75, WRITE, SUCCESS, 10 * round..10 * round + 3);
    }
    assert_eq!(bystander.events.map(|slot| slot.count()), [0, 0]);
    close_connected(&pair.bench, &bystander);
    pair.check();
    pair.close();
}

#[test]
fn write_39_of_no_bytes_is_not_checked_by_the_peer() {
    // choice: as InfiniBand has it, a write of length 0 names no byte, so the responder looks at neither token nor address.
    let pair = Pair::new(QpSize::default());
    let places = [(0, 0), (pair.sink.va(0), pair.sink.token ^ 0xFF), (u64::MAX, u32::MAX), (pair.sink.va(pair.sink.len()) + 9, 1)];
    for (request, (to, token)) in (0..).zip(places) {
        assert_eq!(pair.bench.write(pair.qp(), request, &[], to, token, 0), SUCCESS);
    }
    pair.succeed(0..4);
    pair.post(4, 0, 100, 100, 0);
    pair.succeed([4]);
    pair.check();
    pair.close();
}

#[test]
fn write_40_to_a_peer_that_is_gone_times_out_and_the_rest_is_cancelled() {
    // A timeout of 8.2 us, so that a peer need not be gone for half a second.
    let bench = Bench::with_retries(LinkConfig::default(), Some((1, 2)));
    let ends = End::both(&bench);
    let mut pair = Pair::of(bench, ends, QpSize { receives: 8, ..QpSize::default() });
    pair.post(1, 0, 100, 100, 0);
    pair.succeed([1]);
    let receives = [50, 51];
    for request in receives {
        assert_eq!(ndk!(pair.qp(), NdkReceive(request as PVOID, null(), 0)), SUCCESS);
    }
    pair.bench.world.lose(0, |_| true);
    // Nothing of these arrives, so the sink stays as it is. The first one is silent: it fails all the same.
    let to = pair.sink.va(5_000);
    for (request, flags) in [(2, SILENT), (3, 0), (4, SILENT), (5, DEFER), (6, 0)] {
        assert_eq!(pair.bench.write(pair.qp(), request, &[pair.source.sge(0, 3_000)], to, pair.sink.token, flags), SUCCESS);
    }
    let start = pair.bench.world.clock();
    let entries = pair.bench.reap(pair.ends[0].initiator_cq, 5);
    // choice: three times 8.2 us at least, and four times that at most (rocev2.md: a timeout T may take up to 4T), with the poll behind it.
    let took = pair.bench.world.clock() - start;
    assert!((3 * 2_048..3 * 8_192 + 2_000).contains(&took), "{took} clocks");
    check(&entries[..1], pair.size.context, WRITE, nt(NtStatus::IO_TIMEOUT), [2]);
    check(&entries[1..], pair.size.context, WRITE, CANCELLED, 3..=6);
    // choice: the code is the card's status, and there is no syndrome.
    assert_eq!(entries[0].code, 0x000C);
    check(&pair.bench.reap(pair.ends[0].receive_cq, 2), pair.size.context, RECEIVE, CANCELLED, receives);
    pair.bench.settle();
    assert_eq!(pair.counter(0, Counter::AckTimeouts), 2);
    assert_eq!(pair.connected.events[0].calls(), [Call::Disconnected], "the connection is lost");
    assert_eq!(pair.try_post(7, 0, 8, 0, 0), CONNECTION_INVALID);
    pair.check();
    // The peer is back, and so is a connection.
    pair.bench.world.lose_none(0);
    pair.reconnect();
    pair.post(8, 0, 100, 300, 0);
    pair.succeed([8]);
    pair.check();
    pair.close();
}

#[test]
fn write_41_shows_its_last_byte_last() {
    let pair = Pair::new(QpSize::default());
    assert_ne!(pair.bench.info(1).AdapterFlags & NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED, 0);
    // No byte of the source is a canary, so each one shows when it is there.
    for (request, (to, len)) in (0..).zip([(40, 1), (101, 200), (1_000, 4_096), (9_001, 10_000)]) {
        let bytes: Vec<u8> = pair.source.read(0, len).iter().map(|byte| byte & 0x7F).collect();
        pair.source.fill(0, &bytes);
        pair.post(request, 0, len as u32, to, 0);
        let mut partial = 0;
        for _ in 0.. {
            let found = pair.sink.read(to, len);
            let done = found.iter().zip(&bytes).take_while(|(found, byte)| found == byte).count();
            // Stronger than what a consumer may ask for: at each clock it is a beginning of the data.
            assert!(found[done..].iter().all(|byte| *byte == CANARY), "a byte in front of an earlier one, of {len} at {to}");
            partial += usize::from(done > 0 && done < len);
            if done == len {
                break;
            }
            assert!(pair.bench.world.clock() < 1_000_000, "waiting for the last byte");
            pair.bench.world.run(3).unwrap();
        }
        assert!(partial > 0 || len < 4_096, "it was never seen while it arrived");
        pair.succeed([request]);
    }
    pair.check();
    pair.close();
}

#[test]
fn write_42_is_visible_before_what_is_posted_behind_it() {
    // choice: the card executes no sends, so NdkSend fails inline and no receive can tell of a write. What can: a later write.
    let mut pair = Pair::new(QpSize::default());
    let sge = pair.source.sge(0, 8);
    assert_eq!(ndk!(pair.connected.qps[1], NdkReceive(5 as PVOID, null(), 0)), SUCCESS);
    for delay in 0..6 {
        pair.post(1, 500 * delay, 6_000, 1_000, DEFER);
        pair.post(2, 0, 1, 100, 0);
        assert_eq!(ndk!(pair.qp(), NdkSend(3 as PVOID, &sge, 1, 0)), NOT_SUPPORTED);
        let (flag, data) = (pair.source.read(0, 1)[0], pair.source.read(500 * delay, 6_000));
        while pair.sink.read(100, 1)[0] != flag {
            assert!(pair.bench.world.clock() < 1_000_000, "waiting for the flag");
            pair.bench.world.run(2).unwrap();
        }
        assert!(pair.sink.read(1_000, 6_000) == data, "the flag is there and the data is not");
        pair.succeed([1, 2]);
        // Anew.
        pair.sink.fill(0, &[CANARY; 8_000]);
        pair.written(0, &[CANARY; 8_000]);
    }
    ndk!(pair.connected.qps[1], NdkFlush());
    check(&pair.bench.reap(pair.ends[1].receive_cq, 1), pair.size.context, RECEIVE, CANCELLED, [5]);
    pair.check();
    pair.reconnect();
    pair.close();
}

// Completion.

#[test]
fn write_43_completes_with_status_and_both_contexts() {
    let mut pair = Pair::new(QpSize::default());
    let contexts = [0, 1, u64::MAX, 0x8000_0000_0000_0000, 0x0123_4567_89AB_CDEF];
    let others = contexts.map(|context| pair.another(QpSize { context, ..QpSize::default() }));
    let cq = pair.ends[0].initiator_cq;
    for (other, context) in others.iter().zip(contexts) {
        for request in contexts {
            assert_eq!(write(other.qps[0], request, &[pair.source.sge(0, 9)], pair.sink.va(50), pair.sink.token, 0), SUCCESS);
        }
        check(&pair.bench.reap(cq, 5), context, WRITE, SUCCESS, contexts);
        // By the call that has no types.
        assert_eq!(write(other.qps[0], context, &[], 0, 0, 0), SUCCESS);
        pair.bench.settle();
        let mut results: Vec<NDK_RESULT> = Vec::with_capacity(2);
        assert_eq!(ndk!(cq, NdkGetCqResults(results.as_mut_ptr(), 2)), 1);
        // SAFETY: the provider has written one.
        unsafe { results.set_len(1) };
        assert_eq!((results[0].Status, results[0].QPContext as u64, results[0].RequestContext as u64), (SUCCESS, context, context));
    }
    pair.written(50, &pair.source.read(0, 9));
    // A failure has them too.
    let bad = &others[4];
    assert_eq!(write(bad.qps[0], u64::MAX, &[pair.source.sge(0, 9)], 0, 0, 0), SUCCESS);
    assert_eq!(write(bad.qps[0], 0, &[], 0, 0, 0), SUCCESS);
    let entries: Vec<_> = pair.bench.reap(cq, 2).iter().map(|entry| (entry.status, entry.qp, entry.request)).collect();
    assert_eq!(entries, [(ACCESS_VIOLATION, contexts[4], u64::MAX), (CANCELLED, contexts[4], 0)]);
    others.iter().for_each(|other| close_connected(&pair.bench, other));
    pair.check();
    pair.close();
}

#[test]
fn write_44_completes_as_a_write_with_a_code_that_is_zero_on_success() {
    let mut pair = Pair::new(QpSize::default());
    let cq = pair.ends[0].initiator_cq;
    pair.post(0, 0, 10, 10, 0);
    assert_eq!(pair.inline(1, b"abc", 100, 0), SUCCESS);
    pair.post(2, 0, 0, 0, 0);
    let kinds: Vec<_> = pair.bench.reap(cq, 3).iter().map(|entry| (entry.operation, entry.code)).collect();
    assert_eq!(kinds, [(64, 0); 3]);
    // choice: on failure the card's status is in bits 7:0 and the syndrome of the NAK, if there was one, in bits 15:8.
    assert_eq!(pair.bench.write(pair.qp(), 3, &[pair.source.sge(0, 9)], pair.sink.va(0), 0, 0), SUCCESS);
    pair.post(4, 0, 0, 0, 0);
    let [refused, flushed] = pair.bench.reap(cq, 2)[..] else { unreachable!() };
    assert_eq!((refused.operation, refused.code), (64, REMOTE_ACCESS));
    assert_eq!((flushed.operation, flushed.code & 0xFF00), (64, 0));
    assert_ne!(flushed.code, 0);
    pair.reconnect();
    let sge = NDK_SGE { MemoryRegionToken: 0, ..pair.source.sge(0, 9) };
    assert_eq!(pair.bench.write(pair.qp(), 5, &[sge], pair.sink.va(0), pair.sink.token, 0), SUCCESS);
    let entry = pair.bench.reap(cq, 1)[0];
    assert_eq!((entry.operation, entry.code & 0xFF00), (64, 0));
    assert_ne!(entry.code, 0);
    pair.check();
    pair.close();
}

#[test]
fn write_45_completes_in_the_initiator_cq() {
    let pair = Pair::new(QpSize::default());
    let end = pair.ends[0];
    for cq in [end.receive_cq, end.initiator_cq] {
        ndk!(cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    }
    pair.post(0, 0, 100, 100, 0);
    pair.bench.settle();
    assert_eq!(take(end.receive_cq, 1), []);
    pair.succeed([0]);
    // One that fails, and one that is cancelled.
    assert_eq!(pair.bench.write(pair.qp(), 1, &[pair.source.sge(0, 9)], pair.sink.va(0), 0, 0), SUCCESS);
    pair.post(2, 0, 0, 0, 0);
    pair.bench.settle();
    assert_eq!(take(end.receive_cq, 1), []);
    assert_eq!(pair.bench.reap(end.initiator_cq, 2).iter().map(|entry| entry.request).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((end.received.calls(), end.initiated.calls()), (vec![], vec![Call::Notified(SUCCESS)]));
    pair.check();
    pair.close();
}

#[test]
fn write_46_completes_in_the_order_of_the_posts() {
    let pair = Pair::new(QpSize { initiators: 256, inline_bytes: 96, ..QpSize::default() });
    let mut rng = Rng::new(seed(), 46);
    let mut expected = Vec::new();
    for request in 0..200 {
        let flags = [SILENT, FENCE, DEFER].into_iter().filter(|_| rng.percent(30)).sum::<u32>() | if rng.percent(40) { INLINE } else { 0 };
        let most = if flags & INLINE != 0 { 96 } else { [2, 70, 15_000][rng.below(3) as usize] };
        let (from, to) = (rng.below(9_000) as usize, rng.below(100_000) as usize);
        pair.post_either(request, from, rng.below(most + 1) as u32, to, flags);
        if flags & SILENT == 0 {
            expected.push(request);
        }
    }
    pair.post(200, 0, 1, 0, 0);
    expected.push(200);
    pair.succeed(expected);
    pair.check();
    pair.close();
}

#[test]
fn write_47_that_is_complete_gives_its_source_back_and_has_arrived() {
    let pair = Pair::new(QpSize::default());
    for (request, len) in (0..).zip([1, 64, 4_096, 4_097, 9_000]) {
        let bytes = noise(47 + request, len);
        pair.source.fill(0, &bytes);
        pair.post(request, 0, len as u32, 100, 0);
        let start = pair.bench.world.clock();
        let entry = loop {
            assert!(pair.bench.world.clock() - start < 50_000, "waiting for a completion");
            if let [entry] = take(pair.ends[0].initiator_cq, 1)[..] {
                break entry;
            }
            pair.bench.world.run(1).unwrap();
        };
        assert_eq!((entry.request, entry.status), (request, SUCCESS));
        // choice: the card acknowledges what is in memory, so it is there by now. NDKPI does not ask for that.
        assert!(pair.sink.read(100, len) == bytes, "{len} bytes are complete and not there");
        pair.source.fill(0, &vec![0x11; len]);
        pair.check();
    }
    pair.close();
}

#[test]
fn write_48_satisfies_an_arm_for_any_and_one_for_solicited_if_it_fails() {
    let mut pair = Pair::new(QpSize::default());
    // What is armed, whether the write succeeds, and whether that is told.
    let cases = [
        (None, true, false),
        (Some(NDK_CQ_NOTIFY_ANY), true, true),
        (Some(NDK_CQ_NOTIFY_SOLICITED), true, false),
        (Some(NDK_CQ_NOTIFY_ERRORS), true, false),
        (None, false, false),
        (Some(NDK_CQ_NOTIFY_ANY), false, true),
        (Some(NDK_CQ_NOTIFY_SOLICITED), false, true),
        (Some(NDK_CQ_NOTIFY_ERRORS), false, false),
    ];
    for (kind, is_good, is_told) in cases {
        let what = format!("armed {kind:?}, success {is_good}");
        // An arm that was not satisfied stays, so each case has a CQ of its own.
        pair.renew_initiator_cq();
        let (cq, slot) = (pair.ends[0].initiator_cq, pair.ends[0].initiated);
        if let Some(kind) = kind {
            ndk!(cq, NdkArmCq(kind));
        }
        let token = if is_good { pair.sink.token } else { 0 };
        let posted = || assert_eq!(write(pair.qp(), 1, &[pair.source.sge(0, 10)], pair.sink.va(10), token, 0), SUCCESS);
        posted();
        pair.bench.settle();
        assert_eq!(slot.calls(), vec![Call::Notified(SUCCESS); usize::from(is_told)], "{what}");
        let entry = pair.bench.reap(cq, 1)[0];
        assert_eq!(entry.status, if is_good { SUCCESS } else { ACCESS_VIOLATION }, "{what}");
        if is_good {
            // One call for one arm.
            posted();
            pair.bench.reap(cq, 1);
            pair.bench.settle();
            assert_eq!(slot.count(), usize::from(is_told), "{what}");
        }
    }
    pair.written(10, &pair.source.read(0, 10));
    pair.check();
    pair.close();
}

#[test]
fn write_49_that_is_silent_takes_a_slot_until_it_is_known_to_be_done() {
    let pair = Pair::new(QpSize { initiators: 4, ..QpSize::default() });
    let silent = |first: u64, count: u64| {
        for request in first..first + count {
            pair.post(request, 10 * request as usize, 50, 60 * request as usize, SILENT | DEFER);
        }
    };
    silent(0, 4);
    assert_eq!(pair.try_post(4, 0, 8, 50_000, SILENT), FULL, "silent requests count");
    // choice: the card's progress frees them, without any completion.
    pair.bench.settle();
    silent(4, 4);
    assert_eq!(pair.try_post(8, 0, 8, 50_000, 0), FULL);
    pair.bench.settle();
    // The completion of a later request frees them as well, at the latest when it is returned.
    silent(8, 3);
    pair.post(11, 0, 10, 5_000, 0);
    pair.succeed([11]);
    // choice: behind a completion that was not taken yet no slot is freed, by whatever the card knows.
    pair.post(12, 0, 10, 6_000, 0);
    silent(13, 3);
    assert_eq!(pair.try_post(16, 0, 8, 50_000, SILENT), FULL);
    pair.bench.settle();
    assert_eq!(pair.try_post(16, 0, 8, 50_000, SILENT), FULL);
    pair.succeed([12]);
    silent(16, 4);
    assert_eq!(pair.try_post(20, 0, 8, 50_000, 0), FULL);
    pair.check();
    pair.close();
}

#[test]
fn write_50_is_completed_once_whatever_happens() {
    // Some are done and some are not when the QP is flushed, disconnected and closed, each of which flushes. Retries: see 55.
    for delay in [0, 10, 25, 60] {
        let mut pair = Pair::new(QpSize { initiators: 64, ..QpSize::default() });
        let (from, cq) = (10_000, pair.ends[0].initiator_cq);
        for request in 0..40 {
            assert_eq!(pair.try_post(request, 0, 4_000, from, if request > 35 { DEFER } else { 0 }), SUCCESS);
        }
        (0..delay).for_each(|_| pair.bench.step());
        let mut entries = take(cq, 5);
        ndk!(pair.qp(), NdkFlush());
        pair.bench.step();
        entries.extend(take(cq, 5));
        let slot = pair.disconnect(0);
        ndk!(pair.qp(), NdkFlush());
        assert_eq!(pair.bench.done(PENDING, slot), SUCCESS);
        let closed = pair.close_connector();
        pair.bench.closed(closed);
        let sides = pair.connected.qps;
        close!(pair.bench, sides[0] => NdkCloseQp);
        pair.bench.settle();
        // Those of a closed QP are still there.
        entries.extend(take(cq, 1_000));
        let done = entries.iter().take_while(|entry| entry.status == SUCCESS).count();
        check(&entries[..done], pair.size.context, WRITE, SUCCESS, 0..done as u64);
        check(&entries[done..], pair.size.context, WRITE, CANCELLED, done as u64..40);
        pair.adopt(from, 4_000);
        pair.connected.qps[0] = pair.ends[0].qp(&pair.bench, pair.size);
        pair.check();
        pair.close();
    }
}

// Teardown.

#[test]
fn write_51_that_is_pending_is_cancelled_by_a_flush_in_its_order() {
    for delay in [0, 5, 20, 45] {
        let pair = Pair::new(QpSize { initiators: 64, ..QpSize::default() });
        // Silent ones all over, and the last ones deferred.
        let is_silent = |request: &u64| request % 3 == 1;
        for request in 0..24 {
            let flags = if is_silent(&request) { SILENT } else { 0 } | if request > 18 { DEFER } else { 0 };
            assert_eq!(pair.try_post(request, 0, 6_000, 10_000, flags), SUCCESS);
        }
        (0..delay).for_each(|_| pair.bench.step());
        let start = pair.bench.world.clock();
        ndk!(pair.qp(), NdkFlush());
        assert_eq!(pair.bench.world.clock(), start, "it returns at once");
        pair.bench.settle();
        let entries = take(pair.ends[0].initiator_cq, 100);
        let first = entries.iter().find(|entry| entry.status == CANCELLED).expect("the deferred ones at least").request;
        assert!(first <= 19);
        let (done, cancelled) = entries.split_at(entries.iter().take_while(|entry| entry.status == SUCCESS).count());
        check(done, pair.size.context, WRITE, SUCCESS, (0..first).filter(|request| !is_silent(request)));
        check(cancelled, pair.size.context, WRITE, CANCELLED, first..24);
        // choice: after a flush the QP is dead, and posts fail inline.
        assert_eq!(pair.try_post(24, 0, 8, 0, 0), CONNECTION_INVALID);
        pair.adopt(10_000, 6_000);
        pair.check();
        pair.close();
    }
}

/// The source of the writes of item 52: mapped by the test, so that it leaves the card's reach at once when the mapping is dropped.
const SOURCE: (usize, usize) = (100, 5 * PAGE_SIZE);

/// Maps the source, and posts a dozen writes from there.
#[track_caller]
fn post_from_mapped(pair: &Pair) -> Mapped {
    let mut token = 0;
    ndk!(pair.ends[0].pd, NdkGetPrivilegedMemoryRegionToken(&mut token));
    let mapped = Mapped::new(pair, SOURCE.0, SOURCE.1);
    for request in 0..12 {
        let flags = if request % 2 == 0 { SILENT } else { 0 };
        assert_eq!(pair.bench.write(pair.qp(), request, &[mapped.sge(token)], pair.sink.va(0), pair.sink.token, flags), SUCCESS);
    }
    mapped
}

/// Ends the connection so many steps after `begun` says that it may be ended, and takes the source away when the end is complete.
#[track_caller]
fn ends_of_connections_end_reads(pair: &mut Pair, delays: &[u32], begun: impl Fn(&Pair)) {
    for delay in delays {
        for is_close in [false, true] {
            let mapped = post_from_mapped(pair);
            begun(pair);
            (0..*delay).for_each(|_| pair.bench.step());
            if is_close {
                let closed = pair.close_connector();
                pair.bench.closed(closed);
            } else {
                let slot = pair.disconnect(0);
                assert_eq!(pair.bench.done(PENDING, slot), SUCCESS);
            }
            // No clock goes by between the completion and this.
            drop(mapped);
            pair.bench.settle();
            let entries = take(pair.ends[0].initiator_cq, 100);
            let first = entries.iter().find(|entry| entry.status == CANCELLED).map_or(12, |entry| entry.request);
            let (done, cancelled) = entries.split_at(entries.iter().take_while(|entry| entry.status == SUCCESS).count());
            check(done, pair.size.context, WRITE, SUCCESS, (0..first).filter(|request| request % 2 == 1));
            check(cancelled, pair.size.context, WRITE, CANCELLED, first..12);
            pair.reconnect();
        }
    }
    pair.adopt(0, SOURCE.1);
    pair.check();
}

#[test]
fn write_52_reads_its_source_no_more_when_disconnect_or_close_of_the_connector_is_complete() {
    let mut pair = Pair::new(QpSize { initiator_sges: 6, ..QpSize::default() });
    ends_of_connections_end_reads(&mut pair, &[0, 3, 8, 15, 30], |_| ());
    // The same without waiting, to see that a read would not go unnoticed. It ends the simulation.
    let mapped = post_from_mapped(&pair);
    (0..8).for_each(|_| pair.bench.step());
    drop(mapped);
    let fault = pair.bench.world.run(20_000).expect_err("memory that was taken away under way").to_string();
    assert!(fault.contains("card 0 reads") && fault.contains("which is not mapped"), "{fault}");
}

#[test]
fn write_52_holds_while_it_is_being_sent_again() {
    // 12 us one way, with a timeout of 8 us: everything is sent again before it can be acknowledged.
    let bench = Bench::with_retries(LinkConfig { latency: 3_000, ..LinkConfig::default() }, Some((1, 7)));
    let ends = End::both(&bench);
    let mut pair = Pair::of(bench, ends, QpSize { initiator_sges: 6, ..QpSize::default() });
    ends_of_connections_end_reads(&mut pair, &[0, 1, 2, 4, 9, 25], |pair| {
        let before = pair.counter(0, Counter::AckTimeouts);
        pair.bench.wait("a timeout", || (pair.counter(0, Counter::AckTimeouts) > before).then_some(()));
    });
    pair.close();
}

#[test]
fn write_53_fails_after_a_disconnect() {
    let mut pair = Pair::new(QpSize::default());
    pair.post(0, 0, 100, 100, 0);
    pair.succeed([0]);
    let slot = pair.disconnect(0);
    assert_eq!(pair.try_post(1, 0, 8, 0, 0), CONNECTION_INVALID, "while it pends");
    assert_eq!(pair.bench.done(PENDING, slot), SUCCESS);
    for flags in [0, SILENT, INLINE, DEFER] {
        assert_eq!(pair.try_post(1, 0, 8, 0, flags), CONNECTION_INVALID);
    }
    // The peer has its event, and may post until it disconnects itself.
    // choice: what it posts is cancelled by that, as nobody acknowledges it.
    pair.bench.settle();
    assert_eq!((pair.connected.events[0].calls(), pair.connected.events[1].calls()), (vec![], vec![Call::Disconnected]));
    let peer = pair.connected.qps[1];
    assert_eq!(write(peer, 7, &[], 0, 0, 0), SUCCESS);
    let slot = pair.disconnect(1);
    assert_eq!(pair.bench.done(PENDING, slot), SUCCESS);
    assert_eq!(write(peer, 8, &[], 0, 0, 0), CONNECTION_INVALID);
    check(&pair.bench.reap(pair.ends[1].initiator_cq, 1), pair.size.context, WRITE, CANCELLED, [7]);
    pair.check();
    pair.reconnect();
    pair.post(1, 0, 100, 300, 0);
    pair.succeed([1]);
    pair.check();
    pair.close();
}

#[test]
fn write_54_that_meets_a_flush_or_the_close_of_the_connector_completes_once_or_fails() {
    let mut pair = Pair::new(QpSize { initiators: 256, ..QpSize::default() });
    for is_close in [false, true] {
        for after in [0, 1, 2, 9, 40, 150, 400, 900] {
            let (poster, counter) = (pair.poster(), AtomicU64::new(0));
            let mut entries = Vec::new();
            let posted = thread::scope(|scope| {
                let counter = &counter;
                let posts = scope.spawn(move || poster.post_until_refused(counter));
                while counter.load(Ordering::Relaxed) < after {
                    // With many of them, some complete meanwhile.
                    if counter.load(Ordering::Relaxed) > 200 {
                        pair.bench.step();
                        entries.extend(take(pair.ends[0].initiator_cq, 64));
                    }
                }
                let closed = if is_close {
                    Some(pair.close_connector())
                } else {
                    ndk!(pair.qp(), NdkFlush());
                    None
                };
                while !posts.is_finished() {
                    pair.bench.step();
                    entries.extend(take(pair.ends[0].initiator_cq, 64));
                }
                if let Some(closed) = closed {
                    pair.bench.closed(closed);
                }
                posts.join().unwrap()
            });
            pair.bench.settle();
            entries.extend(take(pair.ends[0].initiator_cq, 1_000));
            pair.check_race(posted, &entries);
            pair.reconnect();
        }
    }
    pair.close();
}

#[test]
fn doorbells_that_come_late_to_a_dead_qp_flush_nothing() {
    let mut pair = Pair::new(QpSize::default());
    pair.post(0, 0, 50, 100, 0);
    pair.post(1, 50, 50, 200, 0);
    pair.succeed([0, 1]);
    ndk!(pair.qp(), NdkFlush());
    pair.bench.settle();
    // As of a processor that was interrupted between the decision to ring and the doorbell; and indices that nobody can ring for.
    for index in [1, 2, 0, 600, 0x8000, 0xFFFF] {
        pair.bench.sides[0].card.bar().write32(Doorbell::Sq.offset(limits::FIRST_QPN), index);
        pair.bench.settle();
        assert_eq!(pair.bench.take(pair.ends[0].initiator_cq, 64), [], "after doorbell {index}");
        let anomalies = pair.bench.sides[0].host().anomalies();
        assert_eq!((anomalies.stray_completions(), anomalies.dead_cqs()), (0, 0), "after doorbell {index}");
    }
    pair.reconnect();
    pair.post(2, 0, 50, 300, 0);
    pair.succeed([2]);
    pair.check();
    pair.close();
}

// What shows in time and in counters.

#[test]
fn write_55_of_many_packets_is_one_write_on_any_link() {
    let links = [
        LinkConfig::default(),
        LinkConfig { stall_percent: 40, ..LinkConfig::default() },
        LinkConfig { duplicate_ppm: 300_000, ..LinkConfig::default() },
        LinkConfig { latency: 2_000, stall_percent: 10, duplicate_ppm: 100_000, ..LinkConfig::default() },
        LinkConfig { loss_ppm: 100_000, ..LinkConfig::default() },
        LinkConfig { reorder_ppm: 100_000, ..LinkConfig::default() },
        LinkConfig { corrupt_ppm: 50_000, duplicate_ppm: 50_000, loss_ppm: 20_000, ..LinkConfig::default() },
    ];
    for link in links {
        // 33 us, twice as long as the slowest of these links takes there and back, and seven retries.
        let bench = Bench::with_retries(link, Some((3, 7)));
        let ends = End::both(&bench);
        let pair = Pair::of(bench, ends, QpSize::default());
        for (request, len) in (0..).zip([100_000, 0, 3, 8_192, 8_193]) {
            pair.post(request, 17, len, 100 + request as usize, if len == 3 { SILENT } else { 0 });
        }
        let packets = 25 + 1 + 1 + 2 + 3;
        pair.succeed([0, 1, 3, 4]);
        pair.check();
        assert_eq!(pair.counter(1, Counter::RxRequests), packets, "each packet is executed once, {link:?}");
        assert!(link.duplicate_ppm == 0 || pair.counter(1, Counter::RxDuplicates) > 0, "the link did its part");
        let is_lossy = link.loss_ppm + link.reorder_ppm + link.corrupt_ppm != 0;
        assert_eq!(pair.counter(0, Counter::AckTimeouts) != 0, is_lossy, "something is sent again if something is lost, {link:?}");
        pair.close();
    }
}

#[test]
fn write_56_works_many_times_and_for_long() {
    // They go around the rings of depth 64 and 256 hundreds of times.
    works_many_times(20_000);
}

/// As often as the user-mode test `ndmw` does it: the 16-bit index of requests goes around 122 times. Not by default: it takes up to half an
/// hour.
#[test]
#[ignore = "takes up to half an hour: make test-long"]
fn write_56_works_eight_million_times() {
    works_many_times(8_000_000);
}

fn works_many_times(many: u64) {
    let bytes: usize = 16 << 20;
    let bench = Bench::new();
    let ends = End::both(&bench);
    let pair = Pair::with_memory(bench, ends, QpSize { initiators: 64, ..QpSize::default() }, bytes + 100);
    let is_silent = |request: u64| request % 8 != 0 && request != many - 1;
    let (mut posted, mut done) = (0, 0);
    let expected: Vec<u64> = (0..many).filter(|request| !is_silent(*request)).collect();
    let mut waited = 0;
    while done < expected.len() {
        while posted < many {
            // Where there is no more room they begin anew, with the same bytes.
            let at = 4 * posted as usize % bytes;
            let flags = if is_silent(posted) { SILENT } else { 0 };
            match pair.try_post(posted, at, 4, at, flags) {
                SUCCESS => posted += 1,
                status => {
                    assert_eq!(status, FULL);
                    break;
                }
            }
        }
        pair.bench.step();
        let entries = take(pair.ends[0].initiator_cq, 256);
        waited = if entries.is_empty() { waited + 1 } else { 0 };
        assert!(waited < 1_000, "waiting for the completion of request {}", expected[done]);
        check(&entries, pair.size.context, WRITE, SUCCESS, expected[done..done + entries.len()].iter().copied());
        done += entries.len();
    }
    pair.written(0, &pair.source.read(0, bytes.min(4 * many as usize)));
    pair.check();
    // One of 16 MiB, unaligned on both sides.
    pair.post(7, 33, bytes as u32, 50, 0);
    pair.succeed([7]);
    pair.check();
    pair.close();
}

#[test]
fn write_57_is_counted() {
    // choice: octets are the bytes of whole frames as the MAC has them, without preamble and FCS, and acknowledgements are traffic too:
    // `NDIS_NDK_PERFORMANCE_COUNTERS` asks for layer two with its overhead.
    let pair = Pair::new(QpSize::default());
    let statistics = || [0, 1].map(|side| pair.bench.statistics(side));
    let before = statistics();
    let (mut frames, mut octets) = (0, 0);
    for (request, len) in (0..).zip([0, 1, MAX_MTU, MAX_MTU + 1, 20_000]) {
        let executed = pair.counter(1, Counter::RxRequests);
        let acknowledgements = pair.counter(1, Counter::TxAcks);
        pair.post(request, 3, len as u32, 1_000, 0);
        pair.succeed([request]);
        pair.bench.settle();
        let packets = len.div_ceil(MAX_MTU).max(1);
        // Ethernet, IPv4, UDP, BTH and ICRC around each, a RETH in the first, and the pad of the last. An acknowledgement has an AETH.
        let frame = 14 + 20 + 8 + 12 + 4;
        frames += packets as u64;
        octets += (packets * frame + 16 + len.next_multiple_of(4)) as u64;
        let answers = u64::from(pair.counter(1, Counter::TxAcks));
        let after = statistics();
        let sent = |side: usize, of: fn(&NDIS_NDK_PERFORMANCE_COUNTERS) -> u64| of(&after[side]) - of(&before[side]);
        assert_eq!([sent(0, |of| of.RDMAOutFrames), sent(0, |of| of.RDMAOutOctets)], [frames, octets], "written, {len} bytes");
        assert_eq!([sent(1, |of| of.RDMAInFrames), sent(1, |of| of.RDMAInOctets)], [frames, octets], "taken by the peer, {len} bytes");
        for (side, frames, octets) in [
            (1, sent(1, |of| of.RDMAOutFrames), sent(1, |of| of.RDMAOutOctets)),
            (0, sent(0, |of| of.RDMAInFrames), sent(0, |of| of.RDMAInOctets)),
        ] {
            assert_eq!([frames, octets], [answers, answers * (frame as u64 + 4)], "answered, side {side}, {len} bytes");
        }
        assert!(answers > u64::from(acknowledgements), "each write was acknowledged");
        assert_eq!(pair.counter(1, Counter::RxRequests) - executed, packets as u32);
    }
    // What fails inline, or is deferred, is not sent.
    for (what, status, fail) in FAILURES {
        assert_eq!(fail(&pair), status, "{what}");
    }
    pair.bench.settle();
    let after = statistics();
    assert_eq!(after[0].RDMAOutOctets - before[0].RDMAOutOctets, octets);
    // The rest of what NDIS asks for.
    let connections = after.map(|of| [of.Connect, of.Accept, of.ConnectFailure, of.ConnectionError, of.ActiveConnection, of.CQError]);
    assert_eq!(connections, [[1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 1, 0]]);
    // SAFETY: null is what is asked for.
    assert_eq!(unsafe { VerbenaQueryStatistics(pair.bench.sides[0].adapter, null_mut()) }, INVALID_PARAMETER);
    pair.check();
    pair.close();
}

// Two ends and what goes between them.

/// A domain of a side, a CQ for each queue, and where their notifications go.
#[derive(Clone, Copy)]
struct End {
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    received: &'static Slot,
    initiated: &'static Slot,
}

impl End {
    fn new(bench: &Bench, side: usize) -> Self {
        let [(receive_cq, received), (initiator_cq, initiated)] = [0, 1].map(|_| bench.cq(side, 1024));
        Self { pd: bench.pd(side), receive_cq, initiator_cq, received, initiated }
    }

    fn both(bench: &Bench) -> [Self; 2] {
        [0, 1].map(|side| Self::new(bench, side))
    }

    #[track_caller]
    fn qp(&self, bench: &Bench, size: QpSize) -> *mut NDK_QP {
        bench.qp(self.pd, self.receive_cq, self.initiator_cq, size)
    }

    #[track_caller]
    fn close(self, bench: &Bench) {
        close!(bench, self.pd => NdkClosePd, self.receive_cq => NdkCloseCq, self.initiator_cq => NdkCloseCq);
    }
}

/// A connection, the memory at both ends, and what must be in the sink.
struct Pair {
    bench: Bench,
    ends: [End; 2],
    /// Of the QPs of the connection, and of the next one.
    size: QpSize,
    connected: Connected,
    /// Of side 0, for nothing but local reads. No two places have the same bytes.
    source: Region,
    /// Of side 1, full of canaries.
    sink: Region,
    expected: RefCell<Vec<u8>>,
}

impl Pair {
    #[track_caller]
    fn new(size: QpSize) -> Self {
        let bench = Bench::new();
        let ends = End::both(&bench);
        Self::of(bench, ends, size)
    }

    #[track_caller]
    fn of(bench: Bench, ends: [End; 2], size: QpSize) -> Self {
        Self::with_memory(bench, ends, size, 128 << 10)
    }

    #[track_caller]
    fn with_memory(mut bench: Bench, ends: [End; 2], size: QpSize, bytes: usize) -> Self {
        let source = bench.region(ends[0].pd, bytes, NDK_MR_FLAG_ALLOW_LOCAL_READ);
        source.fill(0, &noise(0, bytes));
        let sink = bench.region(ends[1].pd, bytes, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        let qps = ends.map(|end| end.qp(&bench, size));
        let connected = bench.connect(qps);
        Self { bench, ends, size, connected, source, sink, expected: RefCell::new(vec![CANARY; bytes]) }
    }

    /// Returns the QP that writes.
    fn qp(&self) -> *mut NDK_QP {
        self.connected.qps[0]
    }

    /// Connects two more QPs of the same ends.
    #[track_caller]
    fn another(&mut self, size: QpSize) -> Connected {
        let qps = self.ends.map(|end| end.qp(&self.bench, size));
        self.bench.connect(qps)
    }

    /// Closes the connection and makes a new one.
    #[track_caller]
    fn reconnect(&mut self) {
        close_connected(&self.bench, &self.connected);
        self.connected = self.another(self.size);
    }

    /// As [`Pair::reconnect`], with a new CQ for the writes.
    #[track_caller]
    fn renew_initiator_cq(&mut self) {
        let old = self.ends[0].initiator_cq;
        (self.ends[0].initiator_cq, self.ends[0].initiated) = self.bench.cq(0, 64);
        self.reconnect();
        close!(self.bench, old => NdkCloseCq);
    }

    /// Starts the close of the writer's connector, which is null from here on.
    #[track_caller]
    fn close_connector(&mut self) -> &'static Slot {
        let connector = std::mem::replace(&mut self.connected.connectors[0], null_mut());
        // SAFETY: the connector is live.
        self.bench.close_object(unsafe { (*(*connector).Dispatch).NdkCloseConnector }, connector.cast())
    }

    /// Starts a disconnect.
    #[track_caller]
    fn disconnect(&self, side: usize) -> &'static Slot {
        let slot = self.bench.slot();
        assert_eq!(ndk!(self.connected.connectors[side], NdkDisconnect(Some(on_done), slot.context())), PENDING);
        slot
    }

    /// Posts a write from the source to the sink.
    fn try_post(&self, request: u64, from: usize, len: u32, to: usize, flags: u32) -> NTSTATUS {
        write(self.qp(), request, &[self.source.sge(from, len)], self.sink.va(to), self.sink.token, flags)
    }

    /// Posts a write that is taken and will be done.
    #[track_caller]
    fn post(&self, request: u64, from: usize, len: u32, to: usize, flags: u32) {
        assert_eq!(self.try_post(request, from, len, to, flags), SUCCESS, "write {request}");
        self.written(to, &self.source.read(from, len as usize));
    }

    /// Posts bytes of this process. If they are taken, they will arrive.
    fn inline(&self, request: u64, bytes: &[u8], to: usize, flags: u32) -> NTSTATUS {
        let sge = NDK_SGE { Address: bytes.as_ptr() as u64, Length: bytes.len() as u32, MemoryRegionToken: 0xBAD };
        let status = write(self.qp(), request, &[sge], self.sink.va(to), self.sink.token, flags | INLINE);
        if status == SUCCESS {
            self.written(to, bytes);
        }
        status
    }

    /// Posts a write by inline data or not, as the flags say.
    #[track_caller]
    fn post_either(&self, request: u64, from: usize, len: u32, to: usize, flags: u32) {
        if flags & INLINE == 0 {
            return self.post(request, from, len, to, flags);
        }
        assert_eq!(self.inline(request, &self.source.read(from, len as usize), to, flags), SUCCESS, "write {request}");
    }

    /// Notes what must be in the sink.
    fn written(&self, to: usize, bytes: &[u8]) {
        self.expected.borrow_mut()[to..to + bytes.len()].copy_from_slice(bytes);
    }

    /// Takes what is in the sink for right: a write that was cancelled may have been done, in whole or in part.
    fn adopt(&self, to: usize, len: usize) {
        self.written(to, &self.sink.read(to, len));
    }

    /// Waits for the completions of writes that are done, all of them and in this order.
    #[track_caller]
    fn succeed(&self, requests: impl IntoIterator<Item = u64>) {
        let requests: Vec<u64> = requests.into_iter().collect();
        let entries = self.bench.reap(self.ends[0].initiator_cq, requests.len());
        assert!(entries.iter().all(|entry| entry.code == 0), "{entries:x?}");
        check(&entries, self.size.context, WRITE, SUCCESS, requests);
    }

    /// Lets everything end, and checks that no completion is left and that the sink holds what it must.
    #[track_caller]
    fn check(&self) {
        self.bench.settle();
        for (side, end) in self.ends.iter().enumerate() {
            assert_eq!((take(end.initiator_cq, 1), take(end.receive_cq, 1)), (vec![], vec![]), "completions of side {side}");
        }
        let (found, expected) = (self.sink.read(0, self.sink.len()), self.expected.borrow());
        if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
            let until = found.len().min(at + 16);
            panic!("byte {at} of the sink: found {:02x?}, expected {:02x?}", &found[at..until], &expected[at..until]);
        }
    }

    fn counter(&self, side: usize, counter: Counter) -> u32 {
        self.bench.sides[side].card.bar().read32(counter.offset())
    }

    #[track_caller]
    fn close(self) {
        let Self { bench, ends, connected, source, sink, .. } = self;
        close_connected(&bench, &connected);
        close!(bench, source.mr => NdkCloseMr, sink.mr => NdkCloseMr);
        // Looks at the bytes beside them.
        bench.give_back(source);
        bench.give_back(sink);
        ends.into_iter().for_each(|end| end.close(&bench));
        bench.close();
    }
}

/// Returns bytes that are the same in each run, and hardly anywhere twice.
fn noise(stream: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(0xB17E5, stream);
    (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(len).collect()
}

/// Returns the bytes that entries of a region name.
fn gathered(region: &Region, list: &[NDK_SGE]) -> Vec<u8> {
    list.iter().flat_map(|sge| region.read((sge.Address - region.va(0)) as usize, sge.Length as usize)).collect()
}

/// Closes the QPs of a connection, and its connectors but for one that was closed before.
#[track_caller]
fn close_connected(bench: &Bench, connected: &Connected) {
    let (qps, connectors) = (connected.qps, connected.connectors);
    // The first: a QP's close waits for that of its connector.
    if !connectors[0].is_null() {
        close!(bench, connectors[0] => NdkCloseConnector);
    }
    close!(bench, connectors[1] => NdkCloseConnector, qps[0] => NdkCloseQp, qps[1] => NdkCloseQp, connected.listener => NdkCloseListener);
}

/// Lets the cards run for longer than a short write takes.
fn rest(bench: &Bench) {
    (0..15).for_each(|_| bench.step());
}

// Calls.

/// Posts a list whose count is another one. The list is null if it is empty.
fn write_counted(qp: *mut NDK_QP, list: &[NDK_SGE], count: u32) -> NTSTATUS {
    ndk!(qp, NdkWrite(0x99 as PVOID, if list.is_empty() { null() } else { list.as_ptr() }, count, 0, 0, 0))
}

/// Makes a region whose pages were never named.
#[track_caller]
fn fast_region(bench: &Bench, pd: *mut NDK_PD) -> *mut NDK_MR {
    let (mut mr, slot) = (null_mut(), bench.slot());
    assert_eq!(ndk!(pd, NdkCreateMr(1, Some(on_created), slot.context(), &mut mr)), SUCCESS);
    let status = ndk!(mr, NdkInitializeFastRegisterMr(16, 1, Some(on_done), slot.context()));
    assert_eq!(bench.done(status, slot), SUCCESS);
    mr
}

/// A call of the initiator queue that fails inline: what is wrong with it, its status, and how it is made.
type Failure = (&'static str, NTSTATUS, fn(&Pair) -> NTSTATUS);

/// Everything that a connected QP of two entries and less than 100 inline bytes refuses, but for what finds it full. If they were done, all
/// that transfer something would write to the beginning of the sink.
const FAILURES: [Failure; 14] = [
    ("too many entries", TOO_MANY_SGES, |pair| write(pair.qp(), 0x99, &[pair.source.sge(0, 1); 7], pair.sink.va(0), pair.sink.token, 0)),
    ("too long", TOO_LONG, |pair| pair.try_post(0x99, 0, u32::MAX, 0, 0)),
    ("too many inline bytes", TOO_LONG, |pair| pair.inline(0x99, &[0; 97], 0, DEFER)),
    ("more inline bytes than there is memory", TOO_LONG, |pair| {
        let sge = NDK_SGE { Address: pair.source.va(0), Length: u32::MAX, MemoryRegionToken: 0 };
        write(pair.qp(), 0x99, &[sge; 2], pair.sink.va(0), pair.sink.token, INLINE)
    }),
    ("an inline piece at null", INVALID_PARAMETER, |pair| {
        let pieces = [NDK_SGE::default(), NDK_SGE { Length: 4, ..NDK_SGE::default() }];
        write(pair.qp(), 0x99, &pieces, pair.sink.va(0), pair.sink.token, INLINE)
    }),
    ("a flag that there is not", INVALID_PARAMETER, |pair| pair.try_post(0x99, 0, 1, 0, 1 << 31)),
    ("a flag of another request", INVALID_PARAMETER, |pair| pair.try_post(0x99, 0, 1, 0, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT | DEFER)),
    ("no list, and an entry in it", INVALID_PARAMETER, |pair| write_counted(pair.qp(), &[], 1)),
    ("a send", NOT_SUPPORTED, |pair| ndk!(pair.qp(), NdkSend(0x99 as PVOID, &pair.source.sge(0, 1), 1, DEFER))),
    ("a send that invalidates", NOT_SUPPORTED, |pair| {
        ndk!(pair.qp(), NdkSendAndInvalidate(0x99 as PVOID, &pair.source.sge(0, 1), 1, 0, pair.sink.token))
    }),
    ("a read", NOT_SUPPORTED, |pair| {
        ndk!(pair.qp(), NdkRead(0x99 as PVOID, &pair.source.sge(0, 1), 1, pair.sink.va(0), pair.sink.token, 0))
    }),
    ("a bind", NOT_SUPPORTED, |pair| {
        let va = pair.source.va(0) as PVOID;
        ndk!(pair.qp(), NdkBind(0x99 as PVOID, pair.source.mr, null_mut(), va, 1, NDK_OP_FLAG_ALLOW_REMOTE_READ))
    }),
    ("a fast registration", NOT_SUPPORTED, |pair| {
        let page = NDK_LOGICAL_ADDRESS { QuadPart: 0x1000 };
        ndk!(pair.qp(), NdkFastRegister(0x99 as PVOID, pair.source.mr, 1, &page, 0, 1, 0x1000 as PVOID, 0))
    }),
    ("an invalidation", NOT_SUPPORTED, |pair| ndk!(pair.qp(), NdkInvalidate(0x99 as PVOID, pair.source.mr.cast(), 0))),
];

/// A logical address mapping.
struct Lam {
    /// Header and addresses, as the interface lays them out.
    words: Vec<u64>,
    fbo: usize,
    len: usize,
    side: usize,
}

impl Lam {
    /// Maps a part of the source, by so many MDLs.
    #[track_caller]
    fn new(pair: &Pair, from: usize, len: usize, parts: usize) -> Self {
        Self::of(&pair.bench, 0, pair.source.va(from), len, parts)
    }

    #[track_caller]
    fn of(bench: &Bench, side: usize, va: u64, len: usize, parts: usize) -> Self {
        let adapter = bench.sides[side].adapter;
        let start = va as *const u8;
        let first = len / parts;
        let mut second = mdl(start.wrapping_add(first), len - first);
        let mut chain = mdl(start, if parts == 1 { len } else { first });
        if parts == 2 {
            chain.Next = &mut second;
        }
        let slot = bench.slot();
        let (mut size, mut fbo) = (0, 0);
        let mut build = |lam: *mut NDK_LOGICAL_ADDRESS_MAPPING, size: &mut u32| {
            ndk!(adapter, NdkBuildLAM(&mut chain, len, Some(on_done), slot.context(), lam, size, &mut fbo))
        };
        assert_eq!(build(null_mut(), &mut size), nt(NtStatus::BUFFER_TOO_SMALL));
        let mut words = vec![0u64; size as usize / 8];
        let status = build(words.as_mut_ptr().cast(), &mut size);
        assert_eq!(bench.done(status, slot), SUCCESS);
        // Nobody looks at the descriptors again.
        (chain, second) = (mdl(null(), 0), mdl(null(), 0));
        std::hint::black_box((&chain, &second));
        assert_eq!(words[1] as u32 as usize, words.len() - 2, "AdapterPageCount");
        Self { words, fbo: fbo as usize, len, side }
    }

    /// Returns an entry for each page.
    fn sges(&self, token: u32) -> Vec<NDK_SGE> {
        let (mut skip, mut left) = (self.fbo, self.len);
        let entry = |page: &u64| {
            let len = left.min(PAGE_SIZE - skip);
            let sge = NDK_SGE { Address: page + skip as u64, Length: len as u32, MemoryRegionToken: token };
            (skip, left) = (0, left - len);
            sge
        };
        self.words[2..].iter().map(entry).collect()
    }

    fn release(mut self, pair: &Pair) {
        ndk!(pair.bench.sides[self.side].adapter, NdkReleaseLAM(self.words.as_mut_ptr().cast()));
    }
}

/// A part of the source, mapped for the card until it is dropped.
struct Mapped {
    memory: DmaBuffer,
    offset: usize,
    len: usize,
}

impl Mapped {
    fn new(pair: &Pair, from: usize, len: usize) -> Self {
        let va = pair.source.va(from);
        let offset = va as usize % PAGE_SIZE;
        let first = NonNull::new((va as usize - offset) as *mut u8).expect("memory is not at 0");
        let card = Arc::clone(&pair.bench.sides[0].card);
        // SAFETY: regions are kept for good, and so are the pages that they share.
        let memory = unsafe { DmaBuffer::map(card, first, (offset + len).next_multiple_of(PAGE_SIZE)) }.expect("it can be mapped");
        Self { memory, offset, len }
    }

    /// Returns an entry for all of it, with the privileged token.
    fn sge(&self, token: u32) -> NDK_SGE {
        NDK_SGE { Address: self.memory.iova() + self.offset as u64, Length: self.len as u32, MemoryRegionToken: token }
    }
}

// Races.

/// Writes of a race at most.
const RACE: u64 = 2_000;

/// What a thread posts the writes of a race with: numbers alone, so that it may have them.
#[derive(Clone, Copy)]
struct Poster {
    qp: usize,
    sge: NDK_SGE,
    to: u64,
    token: u32,
}

impl Poster {
    /// Write `request` moves eight bytes from eight times its number to 16 times, so that there are canaries between any two.
    fn post(self, request: u64) -> NTSTATUS {
        let sge = NDK_SGE { Address: self.sge.Address + 8 * request, ..self.sge };
        let flags = if is_silent(request) { SILENT } else { 0 } | if request % 3 == 0 { DEFER } else { 0 };
        write(self.qp as *mut NDK_QP, request, &[sge], self.to + 16 * request, self.token, flags)
    }

    /// Posts until the connection is gone. Returns how many were taken, and counts them meanwhile.
    fn post_until_refused(self, posted: &AtomicU64) -> u64 {
        let mut request = 0;
        while request < RACE {
            match self.post(request) {
                SUCCESS => request += 1,
                FULL => thread::yield_now(),
                CONNECTION_INVALID => break,
                other => panic!("a post gave {other:#x}"),
            }
            posted.store(request, Ordering::Relaxed);
        }
        request
    }
}

/// Tells whether a write of a race is silent.
fn is_silent(request: u64) -> bool {
    request % 4 == 1
}

impl Pair {
    fn poster(&self) -> Poster {
        Poster { qp: self.qp() as usize, sge: self.source.sge(0, 8), to: self.sink.va(0), token: self.sink.token }
    }

    /// Lets the cards run until a thread ends.
    fn join<T>(&self, thread: thread::ScopedJoinHandle<'_, T>) -> T {
        while !thread.is_finished() {
            self.bench.step();
        }
        thread.join().unwrap()
    }

    /// Checks what became of `posted` writes of a race, and makes the sink ready for another one.
    #[track_caller]
    fn check_race(&mut self, posted: u64, entries: &[Entry]) {
        assert!(posted < RACE, "all writes were posted before anything met them");
        // Done up to here, and cancelled from here on, silent ones included.
        let first = entries.iter().find(|entry| entry.status == CANCELLED).map_or(posted, |entry| entry.request);
        let (done, cancelled) = entries.split_at(entries.iter().take_while(|entry| entry.status == SUCCESS).count());
        check(done, self.size.context, WRITE, SUCCESS, (0..first).filter(|request| !is_silent(*request)));
        check(cancelled, self.size.context, WRITE, CANCELLED, first..posted);
        for request in 0..posted as usize {
            if (request as u64) < first {
                self.written(16 * request, &self.source.read(8 * request, 8));
            } else {
                self.adopt(16 * request, 8);
            }
        }
        self.check();
        let len = 16 * RACE as usize;
        self.sink.fill(0, &vec![CANARY; len]);
        self.written(0, &vec![CANARY; len]);
    }
}

// What is looked at.

/// Checks that completions are those of these requests, in their order.
#[track_caller]
fn check(entries: &[Entry], qp: u64, operation: u32, status: NTSTATUS, requests: impl IntoIterator<Item = u64>) {
    let found: Vec<_> = entries.iter().map(|entry| (entry.qp, entry.operation, entry.status, entry.request)).collect();
    assert_eq!(found, requests.into_iter().map(|request| (qp, operation, status, request)).collect::<Vec<_>>());
}

/// Runs a write that must fail, among others that would be right, and checks what the consumers of both sides see of it. The next
/// connection is made then. Returns completions of other QPs that came in between.
///
/// `code` is the `ProviderErrorCode` if it is the peer that refuses; otherwise nothing is sent.
#[track_caller]
fn fails(pair: &mut Pair, what: &str, code: Option<u32>, spoil: impl FnOnce(&Pair) -> (NDK_SGE, u64, u32)) -> Vec<Entry> {
    fails_list(pair, what, code, |pair| {
        let (sge, to, token) = spoil(pair);
        (vec![sge], to, token)
    })
}

/// Does what [`fails`] does with a write of several entries.
#[track_caller]
fn fails_list(pair: &mut Pair, what: &str, code: Option<u32>, spoil: impl FnOnce(&Pair) -> (Vec<NDK_SGE>, u64, u32)) -> Vec<Entry> {
    let (qps, context) = (pair.connected.qps, pair.size.context);
    for (request, qp) in [(21u64, qps[1]), (22, qps[1]), (23, qps[0])] {
        assert_eq!(ndk!(qp, NdkReceive(request as PVOID, null(), 0)), SUCCESS);
    }
    pair.post(11, 0, 64, 100, DEFER);
    let (list, to, token) = spoil(pair);
    assert_eq!(pair.bench.write(pair.qp(), 12, &list, to, token, DEFER), SUCCESS, "{what}");
    assert_eq!(pair.try_post(13, 0, 5_000, 1_000, DEFER), SUCCESS);
    assert_eq!(pair.try_post(14, 0, 50, 7_000, SILENT), SUCCESS);
    let mut entries = Vec::new();
    let mut others = Vec::new();
    pair.bench.wait(what, || {
        let (mine, rest): (Vec<_>, Vec<_>) = take(pair.ends[0].initiator_cq, 1).into_iter().partition(|entry| entry.qp == context);
        entries.extend(mine);
        others.extend(rest);
        (entries.len() == 4).then_some(())
    });
    check(&entries[..1], context, WRITE, SUCCESS, [11]);
    check(&entries[1..2], context, WRITE, ACCESS_VIOLATION, [12]);
    check(&entries[2..], context, WRITE, CANCELLED, [13, 14]);
    let found = entries[1].code;
    assert!(code.map_or(found != 0 && found < 0x100, |code| found == code), "{what}: code {found:#x}");

    // Both sides lose their receives and hear of it, once.
    check(&pair.bench.reap(pair.ends[0].receive_cq, 1), context, RECEIVE, CANCELLED, [23]);
    check(&pair.bench.reap(pair.ends[1].receive_cq, 2), context, RECEIVE, CANCELLED, [21, 22]);
    pair.bench.settle();
    for slot in pair.connected.events {
        assert_eq!(slot.calls(), [Call::Disconnected], "{what}");
    }
    for qp in qps {
        assert_eq!(write(qp, 15, &[], 0, 0, 0), CONNECTION_INVALID, "{what}");
    }
    // All that are there: the CQ is looked at for nothing but these here.
    others.extend(take(pair.ends[0].initiator_cq, 64));
    assert!(others.iter().all(|entry| entry.qp != context), "{what}: {others:x?}");
    pair.reconnect();
    others
}
