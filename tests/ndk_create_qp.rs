//! The requirements that the reference of NDKPI can be read to make of `NdkCreateQp`, numbered here, with a test for each, through the C interface on
//! verilated cards.
//!
//! A comment that begins with `choice:` says what this provider does where NDKPI leaves it open.
//! Helpers are at the bottom.

use std::cell::RefCell;
use std::ffi::c_void;
use std::net::Ipv4Addr;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use verbena_abi::limits::FIRST_QPN;
use verbena_abi::regs::{CapInline, CapQps, CapQueues, CapSges, CmdArgs};
use verbena_host::ndk::NtStatus;
use verbena_host::{Bar, Device, DmaBuffer, Error};
use verbena_ndk::abi::*;
use verbena_ndk::open::{VerbenaProcessEvents, VerbenaWait};
use verbena_sim::{LinkConfig, SimDevice};
use verbena_tests::ndk::*;
use verbena_tests::spy::Spy;
use verbena_tests::{close, ndk};

const FULL: NTSTATUS = nt(NtStatus::NO_MORE_ENTRIES);
const TOO_MANY_SGES: NTSTATUS = nt(NtStatus::DATA_OVERRUN);
const TOO_LONG: NTSTATUS = nt(NtStatus::BUFFER_OVERFLOW);
const NO_RESOURCES: NTSTATUS = nt(NtStatus::INSUFFICIENT_RESOURCES);
const NOT_SUPPORTED: NTSTATUS = nt(NtStatus::NOT_SUPPORTED);
const ACCESS_VIOLATION: NTSTATUS = nt(NtStatus::ACCESS_VIOLATION);
const CONNECTION_ACTIVE: NTSTATUS = nt(NtStatus::CONNECTION_ACTIVE);
const CONNECTION_REFUSED: NTSTATUS = nt(NtStatus::CONNECTION_REFUSED);
const DEVICE_REMOVED: NTSTATUS = nt(NtStatus::DEVICE_REMOVED);
const INTERNAL_ERROR: NTSTATUS = nt(NtStatus::INTERNAL_ERROR);

const RECEIVE: u32 = NDK_OPERATION_TYPE::NdkOperationTypeReceive as u32;
const WRITE: u32 = NDK_OPERATION_TYPE::NdkOperationTypeWrite as u32;

// Call shape.

#[test]
fn create_qp_01_takes_twelve_parameters_in_the_order_of_the_interface() {
    type CreateQp = unsafe extern "C" fn(
        *mut NDK_PD,
        *mut NDK_CQ,
        *mut NDK_CQ,
        *mut c_void,
        u32,
        u32,
        u32,
        u32,
        u32,
        Option<unsafe extern "C" fn(*mut c_void, i32, *mut NDK_OBJECT_HEADER)>,
        *mut c_void,
        *mut *mut NDK_QP,
    ) -> i32;
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let end = ends[0];
    // SAFETY: the domain is live; its table has eight entries, of which this one is number 5.
    let (create_qp, entry) = unsafe {
        let create_qp: CreateQp = (*(*end.pd).Dispatch).NdkCreateQp.unwrap();
        (create_qp, (*end.pd).Dispatch.cast::<CreateQp>().add(5).read())
    };
    assert_eq!(create_qp as usize, entry as usize, "entry 5 of the table");
    let slot = bench.slot();
    // Every number is another one, so each is known by what it does.
    // SAFETY: the objects are live; nothing is written where the QP would be, as the creation pends.
    let status = unsafe {
        let context = 0x51 as *mut c_void;
        create_qp(end.pd, end.receive_cq, end.initiator_cq, context, 5, 3, 1, 4, 7, Some(on_created), slot.context(), null_mut())
    };
    let qp: *mut NDK_QP = bench.created(status, slot);
    let other = ends[1].qp(&bench, QpSize::default());
    let pair = Pair::of(&mut bench, ends, [qp, other]);

    assert_eq!(fill(5, |request| receive(qp, request, &[NDK_SGE::default()])), FULL, "ReceiveQueueDepth");
    assert_eq!(receive(qp, 9, &[NDK_SGE::default(); 2]), TOO_MANY_SGES, "MaxReceiveRequestSge");
    assert_eq!(bench.write(qp, 9, &[NDK_SGE::default(); 5], 0, 0, 0), TOO_MANY_SGES, "MaxInitiatorRequestSge");
    assert_eq!(write_inline(&bench, qp, 9, &[0; 8], 0, 0), TOO_LONG, "InlineDataSize");
    assert_eq!(fill(3, |request| write_nothing(&bench, qp, request)), FULL, "InitiatorQueueDepth");
    check(&bench.reap(end.initiator_cq, 3), 0x51, WRITE, SUCCESS, 0..3);
    assert_eq!(write_inline(&bench, qp, 9, &[], 0, 0), SUCCESS);
    bench.reap(end.initiator_cq, 1);
    ndk!(qp, NdkFlush());
    check(&bench.reap(end.receive_cq, 5), 0x51, RECEIVE, CANCELLED, 0..5);
    pair.close(&bench);
    bench.close();
}

#[test]
fn create_qp_02_returns_while_the_clocks_of_the_card_stand_still() {
    let bench = Bench::new();
    let end = End::new(&bench, 0);
    let slots: Vec<_> = (0..100).map(|_| bench.slot()).collect();
    let clock = bench.world.clock();
    for slot in &slots {
        assert_eq!(end.try_qp(&bench, QpSize::default(), slot), PENDING);
    }
    // A card's register can't be read, nor an answer waited for, without clocks.
    assert_eq!(bench.world.clock(), clock);
    for slot in slots {
        let qp: *mut NDK_QP = bench.created(PENDING, slot);
        close!(bench, qp => NdkCloseQp);
    }
    // From inside a callback, which is where DISPATCH_LEVEL is.
    let slot = bench.slot();
    let world = Arc::clone(&bench.world);
    let (outer, (status, clocks)) = create_and(&bench, &end, QpSize::default(), move |_| {
        let clock = world.clock();
        let status = create(&end, QpSize::default(), Some(on_created), slot.context(), null_mut());
        (status, world.clock() - clock)
    });
    assert_eq!(clocks, 0);
    let inner: *mut NDK_QP = bench.created(status, slot);
    close!(bench, outer => NdkCloseQp, inner => NdkCloseQp);
    end.close(&bench);
    bench.close();
}

#[test]
fn create_qp_03_may_be_called_by_several_threads_while_others_use_the_cqs() {
    const THREADS: usize = 4;
    const EACH: usize = 15;
    let bench = Bench::new();
    let end = End::new(&bench, 0);
    let busy = end.qp(&bench, QpSize { context: 1, receives: 64, ..QpSize::default() });
    let slots: Vec<_> = (0..THREADS * EACH).map(|_| bench.slot()).collect();
    let shared = Anywhere(end);
    let mut found = Vec::new();
    thread::scope(|scope| {
        let create_each = |slots: &[&'static Slot]| {
            for slot in slots {
                let status = create(shared.get(), QpSize::default(), Some(on_created), slot.context(), null_mut());
                assert_eq!(status, PENDING);
                thread::yield_now();
            }
        };
        let threads: Vec<_> = slots.chunks(EACH).map(|slots| scope.spawn(move || create_each(slots))).collect();
        // Polling, arming, posting and flushing go on meanwhile.
        assert_eq!(fill(64, |request| receive(busy, request, &[])), FULL);
        let mut poll = || {
            ndk!(end.receive_cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
            if found.is_empty() {
                ndk!(busy, NdkFlush());
            }
            found.extend(bench.take(end.receive_cq, 3));
            (found.len() == 64 && slots.iter().all(|slot| slot.count() > 0)).then_some(())
        };
        // How many clocks the threads take is up to the machine.
        while !threads.iter().all(|thread| thread.is_finished()) {
            poll();
            bench.step();
        }
        bench.wait("all creations and receives", poll);
    });
    check(&found, 1, RECEIVE, CANCELLED, 0..64);
    let mut qps: Vec<*mut NDK_QP> = slots.iter().map(|slot| bench.created(PENDING, slot)).collect();
    assert!(slots.iter().all(|slot| slot.count() == 1), "one call each");
    qps.push(busy);
    qps.sort_unstable();
    qps.dedup();
    assert_eq!(qps.len(), THREADS * EACH + 1, "each creation has made its own QP");
    close_all(&bench, &qps);
    end.close(&bench);
    bench.close();
}

#[test]
fn create_qp_04_works_over_a_link_that_carries_nothing_and_sends_nothing() {
    let bench = Bench::with_link(LinkConfig { loss_ppm: 1_000_000, ..LinkConfig::default() });
    let end = End::new(&bench, 0);
    let qp = end.qp(&bench, QpSize::default());
    check_usable(&bench, &end, qp);
    assert_eq!(bench.world.counts(0).tx.frames, 0);
    close!(bench, qp => NdkCloseQp);
    end.close(&bench);
    bench.close();
}

// Validation.

#[test]
fn create_qp_05_a_receive_queue_deeper_than_the_adapter_has_is_refused() {
    check_limit(|info| info.MaxReceiveQueueDepth, |receives, least| QpSize { receives, ..least });
}

#[test]
fn create_qp_06_an_initiator_queue_deeper_than_the_adapter_has_is_refused() {
    check_limit(|info| info.MaxInitiatorQueueDepth, |initiators, least| QpSize { initiators, ..least });
}

#[test]
fn create_qp_07_more_sges_of_a_receive_than_the_adapter_takes_are_refused() {
    check_limit(|info| info.MaxReceiveRequestSge, |receive_sges, least| QpSize { receive_sges, ..least });
}

#[test]
fn create_qp_08_more_sges_of_an_initiator_request_than_the_adapter_takes_are_refused() {
    check_limit(|info| info.MaxInitiatorRequestSge, |initiator_sges, least| QpSize { initiator_sges, ..least });
}

#[test]
fn create_qp_09_more_inline_data_than_the_adapter_takes_is_refused() {
    check_limit(|info| info.MaxInlineDataSize, |inline_bytes, least| QpSize { inline_bytes, ..least });
}

#[test]
fn create_qp_10_each_limit_is_accepted_alone_and_all_five_together() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let info = bench.info(0);
    let all = QpSize {
        context: 10,
        receives: info.MaxReceiveQueueDepth,
        initiators: info.MaxInitiatorQueueDepth,
        receive_sges: info.MaxReceiveRequestSge,
        initiator_sges: info.MaxInitiatorRequestSge,
        inline_bytes: info.MaxInlineDataSize,
    };
    let least = QpSize { context: 10, receives: 1, initiators: 1, receive_sges: 1, initiator_sges: 1, inline_bytes: 0 };
    for alone in [
        QpSize { receives: all.receives, ..least },
        QpSize { initiators: all.initiators, ..least },
        QpSize { receive_sges: all.receive_sges, ..least },
        QpSize { initiator_sges: all.initiator_sges, ..least },
        QpSize { inline_bytes: all.inline_bytes, ..least },
    ] {
        let qp = ends[0].qp(&bench, alone);
        close!(bench, qp => NdkCloseQp);
    }

    // And with all of them together, all of it can be used.
    let qps = [0, 1].map(|side| ends[side].qp(&bench, all));
    let pair = Pair::of(&mut bench, ends, qps);
    let (source, sink) = pair.regions(&bench);
    let sges: Vec<_> = (0..all.initiator_sges).map(|index| source.sge(10 * index as usize, 1)).collect();
    let post = |request: u64| bench.write(qps[0], request, &sges, sink.va(request as usize), sink.token, NDK_OP_FLAG_DEFER);
    assert_eq!(fill(all.initiators.into(), post), FULL);
    let receives = vec![NDK_SGE::default(); all.receive_sges as usize];
    assert_eq!(fill(all.receives.into(), |request| receive(qps[0], request, &receives)), FULL);
    check(&bench.reap(ends[0].initiator_cq, all.initiators as usize), 10, WRITE, SUCCESS, 0..all.initiators.into());
    let data: Vec<u8> = (1..=all.inline_bytes as u8).collect();
    assert_eq!(write_inline(&bench, qps[0], 99, &data, sink.va(1000), sink.token), SUCCESS);
    check(&bench.reap(ends[0].initiator_cq, 1), 10, WRITE, SUCCESS, 99..100);
    assert_eq!(sink.read(1000, data.len()), data);
    ndk!(qps[0], NdkFlush());
    check(&bench.reap(ends[0].receive_cq, all.receives as usize), 10, RECEIVE, CANCELLED, 0..all.receives.into());
    close!(bench, source.mr => NdkCloseMr, sink.mr => NdkCloseMr);
    pair.close(&bench);
    bench.close();
}

#[test]
fn create_qp_11_no_inline_data_is_a_valid_size() {
    let mut bench = Bench::new();
    let pair = Pair::new(&mut bench, QpSize { inline_bytes: 0, ..QpSize::default() });
    let qp = pair.connected.qps[0];
    assert_eq!(write_inline(&bench, qp, 1, &[7], 0, 0), TOO_LONG);
    // choice: a QP without inline data still takes an inline request of no bytes.
    assert_eq!(write_inline(&bench, qp, 2, &[], 0, 0), SUCCESS);
    assert_eq!(write_nothing(&bench, qp, 3), SUCCESS);
    check(&bench.reap(pair.ends[0].initiator_cq, 2), QpSize::default().context, WRITE, SUCCESS, 2..4);
    pair.close(&bench);
    bench.close();
}

#[test]
fn create_qp_12_depths_and_sge_counts_of_one_are_valid() {
    let mut bench = Bench::new();
    let size = QpSize { context: 12, receives: 1, initiators: 1, receive_sges: 1, initiator_sges: 1, inline_bytes: 1 };
    let pair = Pair::new(&mut bench, size);
    let (source, sink) = pair.regions(&bench);
    let qp = pair.connected.qps[0];
    assert_eq!(receive(qp, 0, &[NDK_SGE::default()]), SUCCESS);
    assert_eq!(receive(qp, 1, &[NDK_SGE::default()]), FULL);
    for round in 0..3usize {
        source.fill(0, &[round as u8 + 1]);
        assert_eq!(bench.write(qp, round as u64, &[source.sge(0, 1)], sink.va(round), sink.token, NDK_OP_FLAG_DEFER), SUCCESS);
        assert_eq!(write_nothing(&bench, qp, 9), FULL);
        check(&bench.reap(pair.ends[0].initiator_cq, 1), 12, WRITE, SUCCESS, round as u64..round as u64 + 1);
    }
    assert_eq!(sink.read(0, 4), [1, 2, 3, 0xEE]);
    close!(bench, source.mr => NdkCloseMr, sink.mr => NdkCloseMr);
    pair.close(&bench);
    bench.close();
}

#[test]
fn create_qp_13_a_queue_of_no_requests_takes_none() {
    let mut bench = Bench::new();
    // choice: a depth of 0 and 0 SGEs are accepted; a queue of depth 0 is always full, and 0 SGEs leave requests of no bytes.
    let pair = Pair::new(&mut bench, QpSize { receives: 0, initiators: 0, ..QpSize::default() });
    let qp = pair.connected.qps[0];
    assert_eq!(receive(qp, 1, &[]), FULL);
    assert_eq!(write_nothing(&bench, qp, 2), FULL);
    assert_eq!(write_inline(&bench, qp, 3, &[1, 2], 0, 0), FULL);
    pair.check_empty(&bench);
    pair.close(&bench);

    let context = 13;
    let pair = Pair::new(&mut bench, QpSize { context, receive_sges: 0, initiator_sges: 0, ..QpSize::default() });
    let qp = pair.connected.qps[0];
    assert_eq!(receive(qp, 1, &[NDK_SGE::default()]), TOO_MANY_SGES);
    assert_eq!(bench.write(qp, 1, &[NDK_SGE::default()], 0, 0, 0), TOO_MANY_SGES);
    assert_eq!((receive(qp, 1, &[]), write_nothing(&bench, qp, 2)), (SUCCESS, SUCCESS));
    check(&bench.reap(pair.ends[0].initiator_cq, 1), context, WRITE, SUCCESS, 2..3);
    ndk!(qp, NdkFlush());
    check(&bench.reap(pair.ends[0].receive_cq, 1), context, RECEIVE, CANCELLED, 1..2);
    pair.close(&bench);
    bench.close();
}

#[test]
fn create_qp_14_a_parameter_beyond_its_limit_is_answered_inline_without_asking_the_card() {
    let mut bench = Bench::new();
    let card = Unruly::take(&mut bench, 1);
    let end = End::new(&bench, 0);
    let writes = card.writes.load(Ordering::Relaxed);
    let beyond = QpSize { receives: 513, initiators: 513, receive_sges: 7, initiator_sges: 7, inline_bytes: 97, ..QpSize::default() };
    check_refused(&bench, &end, beyond, INVALID_PARAMETER);
    // Nor does it matter that nothing else would do either.
    card.has_memory.store(false, Ordering::Relaxed);
    check_refused(&bench, &end, beyond, INVALID_PARAMETER);
    assert_eq!(card.writes.load(Ordering::Relaxed), writes, "register writes");
    card.has_memory.store(true, Ordering::Relaxed);
    end.close(&bench);
    bench.close();
}

#[test]
fn create_qp_15_without_memory_commands_or_numbers_there_are_insufficient_resources() {
    /// Commands that wait, and one that is with the card.
    const COMMANDS: usize = 1024 + 1;
    /// Numbers of QPs.
    const QPS: usize = 2048 - 2;
    // choice: all three are answered inline.
    let mut bench = Bench::new();
    let card = Unruly::take(&mut bench, QPS as u32);
    let end = End::new(&bench, 0);
    let tiny = QpSize { receives: 1, initiators: 1, ..QpSize::default() };

    card.has_memory.store(false, Ordering::Relaxed);
    check_refused(&bench, &end, tiny, NO_RESOURCES);
    card.has_memory.store(true, Ordering::Relaxed);

    let mut slots: Vec<&Slot> = Vec::new();
    let ask_until_refused = |slots: &mut Vec<&Slot>| loop {
        let slot = bench.slot();
        match end.try_qp(&bench, tiny, slot) {
            PENDING => slots.push(slot),
            status => break (status, slot),
        }
    };
    let (status, refused) = ask_until_refused(&mut slots);
    assert_eq!((status, slots.len()), (NO_RESOURCES, COMMANDS), "commands");
    all_created(&bench, &slots);
    // The number of the refused one was given back, or one would be missing here.
    let (status, refused_too) = ask_until_refused(&mut slots);
    assert_eq!((status, slots.len()), (NO_RESOURCES, QPS), "numbers");
    let qps = all_created(&bench, &slots);
    assert_eq!((refused.count(), refused_too.count()), (0, 0));
    check_refused(&bench, &end, tiny, NO_RESOURCES);
    check_refused(&bench, &end, QpSize { receives: 513, ..tiny }, INVALID_PARAMETER);

    // One that is closed makes room for one.
    check_usable(&bench, &end, qps[QPS - 1]);
    close!(bench, qps[QPS - 1] => NdkCloseQp);
    let last = end.qp(&bench, tiny);
    check_usable(&bench, &end, last);
    check_refused(&bench, &end, tiny, NO_RESOURCES);

    // Without the card, which would take its time for all of them.
    card.vanish(&bench);
    let mut rest = qps;
    rest[QPS - 1] = last;
    let closes: Vec<_> = rest.iter().map(|qp| start_close(&bench, *qp)).collect();
    // SAFETY: the adapter is open.
    unsafe { VerbenaWait(bench.sides[0].adapter) };
    closes.into_iter().for_each(|slot| bench.closed(slot));
    end.close(&bench);
    bench.close();
}

#[test]
fn create_qp_16_a_cq_need_not_have_room_for_the_queues() {
    let bench = Bench::new();
    let (cq, notified) = bench.cq(0, 1);
    let end = End { pd: bench.pd(0), receive_cq: cq, initiator_cq: cq, notified: [notified; 2] };
    let qps = [0, 1, 2].map(|_| end.qp(&bench, QpSize { receives: 512, initiators: 512, ..QpSize::default() }));
    check_usable(&bench, &end, qps[0]);
    close_all(&bench, &qps);
    close!(bench, cq => NdkCloseCq, end.pd => NdkClosePd);
    bench.close();
}

#[test]
fn create_qp_17_a_cq_serves_any_queues_of_any_qps() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let (pd, a, b) = (ends[0].pd, ends[0].receive_cq, ends[0].initiator_cq);
    let size = |context| QpSize { context, ..QpSize::default() };
    // Receive CQ, initiator CQ.
    let qps = [(a, b), (b, a), (a, a)].map(|(receive_cq, initiator_cq)| {
        let context = 100 + u64::from(receive_cq == b) + 2 * u64::from(receive_cq == initiator_cq);
        bench.qp(pd, receive_cq, initiator_cq, size(context))
    });
    let peers = qps.map(|_| ends[1].qp(&bench, size(0)));
    let connected = [0, 1, 2].map(|index| bench.connect([qps[index], peers[index]]));
    for (index, qp) in (0..).zip(qps) {
        assert_eq!((receive(qp, 10 + index, &[]), write_nothing(&bench, qp, 20 + index)), (SUCCESS, SUCCESS));
    }
    let written = [bench.reap(a, 2), bench.reap(b, 1)].map(sorted);
    assert_eq!(written[0], [(101, 21, WRITE), (102, 22, WRITE)]);
    assert_eq!(written[1], [(100, 20, WRITE)]);
    qps.into_iter().for_each(|qp| ndk!(qp, NdkFlush()));
    let received = [bench.reap(a, 2), bench.reap(b, 1)].map(sorted);
    assert_eq!(received[0], [(100, 10, RECEIVE), (102, 12, RECEIVE)]);
    assert_eq!(received[1], [(101, 11, RECEIVE)]);
    check_empty(&bench, &[a, b]);
    connected.into_iter().for_each(|connected| close_connected(&bench, &connected));
    ends.into_iter().for_each(|end| end.close(&bench));
    bench.close();
}

#[test]
fn create_qp_18_qps_of_different_domains_share_a_cq() {
    let bench = Bench::new();
    let end = End::new(&bench, 0);
    let other = End { pd: bench.pd(0), ..end };
    let qps = [(end, 1), (other, 2)].map(|(end, context)| end.qp(&bench, QpSize { context, ..QpSize::default() }));
    for qp in qps {
        assert_eq!(receive(qp, 7, &[]), SUCCESS);
        ndk!(qp, NdkFlush());
    }
    assert_eq!(sorted(bench.reap(end.receive_cq, 2)), [(1, 7, RECEIVE), (2, 7, RECEIVE)]);
    // The domains have nothing to do with each other, nor the CQs with either.
    close!(bench, qps[0] => NdkCloseQp, end.pd => NdkClosePd);
    check_empty(&bench, &[end.receive_cq, end.initiator_cq]);
    assert_eq!(receive(qps[1], 8, &[]), CONNECTION_INVALID);
    close!(bench, qps[1] => NdkCloseQp);
    other.close(&bench);
    bench.close();
}

#[test]
fn create_qp_19_a_cq_of_another_adapter_is_refused() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    // choice: INVALID_PARAMETER, inline.
    let (own, foreign) = (ends[0], ends[1].receive_cq);
    for wrong in [End { receive_cq: foreign, ..own }, End { initiator_cq: foreign, ..own }, End { pd: ends[1].pd, ..own }] {
        check_refused(&bench, &wrong, QpSize::default(), INVALID_PARAMETER);
    }
    ends.into_iter().for_each(|end| end.close(&bench));
    bench.close();
}

// Result protocol.

#[test]
fn create_qp_20_a_creation_never_succeeds_inline() {
    let bench = Bench::new();
    let end = End::new(&bench, 0);
    let least = QpSize { context: 0, receives: 0, initiators: 0, receive_sges: 0, initiator_sges: 0, inline_bytes: 0 };
    let most = QpSize { context: 0, receives: 512, initiators: 512, receive_sges: 6, initiator_sges: 6, inline_bytes: 96 };
    for size in [least, QpSize::default(), most] {
        let (slot, out) = (bench.slot(), untouched());
        // choice: the card has a part in each creation, so it pends and SUCCESS never comes.
        let status = create(&end, size, Some(on_created), slot.context(), out);
        assert_eq!(status, PENDING);
        let qp: *mut NDK_QP = bench.created(status, slot);
        check_untouched(out);
        close!(bench, qp => NdkCloseQp);
    }
    end.close(&bench);
    bench.close();
}

#[test]
fn create_qp_21_a_pending_creation_ends_in_one_call_with_its_context_and_writes_nothing() {
    let bench = Bench::new();
    let end = End::new(&bench, 0);
    let contexts = [0, 1, u64::MAX, 0x8000_0000_0000_0000, 0x0123_4567_89AB_CDEF];
    let places = contexts.map(|context| {
        let out = untouched();
        assert_eq!(create(&end, QpSize::default(), Some(note_created), context as PVOID, out), PENDING);
        out
    });
    // The place may be gone when the creation ends: a null pointer is one that is.
    assert_eq!(create(&end, QpSize::default(), Some(note_created), 7 as PVOID, null_mut()), PENDING);
    assert_eq!(created(), []);
    bench.settle();
    let calls = created();
    let expected: Vec<_> = contexts.into_iter().chain([7]).map(|context| (context, SUCCESS)).collect();
    assert_eq!(calls.iter().map(|(context, status, _)| (*context, *status)).collect::<Vec<_>>(), expected);
    places.into_iter().for_each(check_untouched);
    let qps: Vec<_> = calls.iter().map(|(_, _, object)| *object as *mut NDK_QP).collect();
    qps.iter().for_each(|qp| check_usable(&bench, &end, *qp));
    close_all(&bench, &qps);
    assert_eq!(created().len(), calls.len(), "no second call");
    end.close(&bench);
    bench.close();
}

#[test]
fn create_qp_22_an_inline_failure_calls_nobody_and_leaves_nothing() {
    let mut bench = Bench::new();
    let card = Unruly::take(&mut bench, 1);
    let end = End::new(&bench, 0);
    check_refused(&bench, &end, QpSize { initiators: 513, ..QpSize::default() }, INVALID_PARAMETER);
    // choice: null where there must be an object or a completion gives INVALID_PARAMETER.
    check_refused(&bench, &End { receive_cq: null_mut(), ..end }, QpSize::default(), INVALID_PARAMETER);
    check_refused(&bench, &End { initiator_cq: null_mut(), ..end }, QpSize::default(), INVALID_PARAMETER);
    assert_eq!(create(&end, QpSize::default(), None, null_mut(), null_mut()), INVALID_PARAMETER);
    card.has_memory.store(false, Ordering::Relaxed);
    check_refused(&bench, &end, QpSize::default(), NO_RESOURCES);
    card.has_memory.store(true, Ordering::Relaxed);
    // The only number that there is was not lost either.
    let qp = end.qp(&bench, QpSize::default());
    close!(bench, qp => NdkCloseQp);
    // References that were left would keep them open.
    end.close(&bench);
    bench.close();
}

#[test]
fn create_qp_23_an_asynchronous_failure_is_told_once_without_an_object_and_leaves_nothing() {
    let mut bench = Bench::new();
    let card = Unruly::take(&mut bench, 1);
    let ends = [End::new(&bench, 0), End::new(&bench, 0)];
    let mappings = bench.sides[0].card.mappings();
    let fails = |end: &End, what: &dyn Fn(), expected| {
        let out = untouched();
        assert_eq!(create(end, QpSize::default(), Some(note_created), 23 as PVOID, out), PENDING);
        what();
        bench.wait("a creation that fails", || (!created().is_empty()).then_some(()));
        rest(&bench);
        // choice: the object of a failure is null.
        assert_eq!(take_created(), [(23, expected, 0)]);
        check_untouched(out);
    };
    card.spoils_next_command.store(true, Ordering::Relaxed);
    // choice: a creation that the card refuses ends with INTERNAL_ERROR, as driver and card agree on what there is.
    fails(&ends[0], &|| (), INTERNAL_ERROR);
    assert_eq!(bench.sides[0].card.mappings(), mappings);
    // Nor is the number lost, of which there is one.
    let qp = ends[1].qp(&bench, QpSize::default());
    close!(bench, qp => NdkCloseQp);
    ends[0].close(&bench);

    // choice: creations of a card that is gone end with DEVICE_REMOVED; later ones fail with it inline.
    card.vanish(&bench);
    let notice = || {
        // SAFETY: the adapter is open.
        unsafe { VerbenaWait(bench.sides[0].adapter) };
        assert_eq!(created(), [], "a wait calls nobody");
    };
    fails(&ends[1], &notice, DEVICE_REMOVED);
    for _ in 0..2 {
        check_refused(&bench, &ends[1], QpSize::default(), DEVICE_REMOVED);
    }
    ends[1].close(&bench);
    bench.close();
}

#[test]
fn create_qp_24_a_completion_may_come_while_the_call_is_under_way_and_never_on_its_stack() {
    type Calls = Mutex<Vec<(ThreadId, NTSTATUS, usize)>>;
    unsafe extern "C" fn note_thread(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
        // SAFETY: the contexts of this test are such lists, and live for good.
        unsafe { &*context.cast::<Calls>() }.lock().unwrap().push((thread::current().id(), status, object as usize));
    }
    let bench = Bench::new();
    let end = End::new(&bench, 0);
    let calls: &[Calls] = Vec::leak((0..60).map(|_| Calls::default()).collect());
    let is_over = AtomicBool::new(false);
    let (adapter, world) = (Anywhere(bench.sides[0].adapter), Arc::clone(&bench.world));
    thread::scope(|scope| {
        // choice: completions are called by whoever processes events, here another thread, at any time from the call on.
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                world.run(50).unwrap();
                // SAFETY: the adapter is open.
                unsafe { VerbenaProcessEvents(*adapter.get()) };
            }
        });
        for calls in calls {
            let context = std::ptr::from_ref(calls).cast_mut().cast();
            assert_eq!(create(&end, QpSize::default(), Some(note_thread), context, null_mut()), PENDING);
        }
        let start = bench.world.clock();
        while calls.iter().any(|calls| calls.lock().unwrap().is_empty()) && bench.world.clock() - start < 400_000 {
            thread::yield_now();
        }
        is_over.store(true, Ordering::Release);
    });
    let qps: Vec<_> = calls
        .iter()
        .map(|calls| match calls.lock().unwrap()[..] {
            [(caller, SUCCESS, object)] if caller != thread::current().id() => object as *mut NDK_QP,
            ref other => panic!("{other:?}"),
        })
        .collect();
    close_all(&bench, &qps);
    end.close(&bench);
    bench.close();
}

#[test]
fn create_qp_25_inside_its_completion_a_qp_takes_receives_and_is_connected_flushed_or_closed() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let end = ends[0];
    let size = QpSize { context: 25, receives: 3, ..QpSize::default() };

    let (flushed, statuses) = create_and(&bench, &end, size, |qp| {
        let statuses = [0, 1, 2, 3].map(|request| receive(qp, request, &[]));
        ndk!(qp, NdkFlush());
        statuses
    });
    assert_eq!(statuses, [SUCCESS, SUCCESS, SUCCESS, FULL]);
    check(&bench.reap(end.receive_cq, 3), 25, RECEIVE, CANCELLED, 0..3);

    let (listener, requests) = listener(&bench, 6_000);
    let (active, slot, ips) = (connector(&bench, 0), bench.slot(), ips(&bench));
    let (connected, status) = create_and(&bench, &end, size, move |qp| connect(active, qp, ips, 6_000, slot));
    assert_eq!(status, PENDING);
    let (passive, accepted) = (requested(&bench, requests, 0), bench.slot());
    let peer = ends[1].qp(&bench, QpSize::default());
    assert_eq!(accept(passive, peer, accepted), PENDING);
    assert_eq!(bench.done(PENDING, slot), SUCCESS);
    let completed = bench.slot();
    let status = ndk!(active, NdkCompleteConnect(None, null_mut(), Some(on_done), completed.context()));
    assert_eq!((bench.done(status, completed), bench.done(PENDING, accepted)), (SUCCESS, SUCCESS));
    assert_eq!(write_nothing(&bench, connected, 5), SUCCESS);
    check(&bench.reap(end.initiator_cq, 1), 25, WRITE, SUCCESS, 5..6);

    let (closed, adapter) = (bench.slot(), bench.sides[0].adapter);
    let (_, (statuses, calls)) = create_and(&bench, &end, size, move |qp| {
        let posted = receive(qp, 0, &[]);
        let status = ndk!(qp, NdkCloseQp(Some(on_closed), closed.context()));
        // SAFETY: the adapter is open.
        unsafe { VerbenaProcessEvents(adapter) };
        ([posted, status], closed.count())
    });
    assert_eq!((statuses, calls), ([SUCCESS, PENDING], 0), "the close waits for the completion of the creation to return");
    bench.closed(closed);
    check(&bench.reap(end.receive_cq, 1), 25, RECEIVE, CANCELLED, 0..1);

    close!(bench, flushed => NdkCloseQp, connected => NdkCloseQp, peer => NdkCloseQp, listener => NdkCloseListener,
        active => NdkCloseConnector, passive => NdkCloseConnector);
    ends.into_iter().for_each(|end| end.close(&bench));
    bench.close();
}

#[test]
fn create_qp_26_the_domain_and_the_cqs_stay_usable_whatever_the_outcome() {
    let mut bench = Bench::new();
    let card = Unruly::take(&mut bench, 1);
    let end = End::new(&bench, 0);
    let check_all = || {
        let qp = end.qp(&bench, QpSize::default());
        check_usable(&bench, &end, qp);
        let region = bench.region(end.pd, 64, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
        close!(bench, qp => NdkCloseQp, region.mr => NdkCloseMr);
    };
    check_all();
    check_refused(&bench, &end, QpSize { receives: 513, ..QpSize::default() }, INVALID_PARAMETER);
    check_all();
    card.spoils_next_command.store(true, Ordering::Relaxed);
    let slot = bench.slot();
    assert_eq!(end.try_qp(&bench, QpSize::default(), slot), PENDING);
    bench.wait("the card's refusal", || (slot.count() > 0).then_some(()));
    assert_eq!(slot.calls(), [Call::Created(INTERNAL_ERROR, 0)]);
    check_all();
    end.close(&bench);
    bench.close();
}

// The object.

#[test]
fn create_qp_27_header_and_table_are_filled_in() {
    let mut bench = Bench::new();
    for (opened, version) in [((2, 1), [2, 0, 1, 0]), ((2, 0), [2, 0, 1, 0]), ((1, 0), [1, 0, 2, 0])] {
        let device: Arc<dyn Device> = Arc::clone(&bench.sides[0].card) as _;
        bench.reopen(0, device, opened);
        let end = End::new(&bench, 0);
        let (qp, bytes) = create_and(&bench, &end, QpSize::default(), |qp| {
            // SAFETY: an object of the interface has 48 bytes.
            unsafe { qp.cast::<[u8; 48]>().read() }
        });
        assert_eq!(bytes[..4], version, "Version");
        assert_eq!(bytes[4..8], [2, 0, 0, 0], "ObjectType");
        assert_eq!(bytes[8..40], [0; 32], "NdkReserved");
        let table = usize::from_le_bytes(bytes[40..].try_into().unwrap()) as *const usize;
        // choice: the table has all eleven entries for each version.
        // SAFETY: so the table has eleven pointers.
        let entries = unsafe { table.cast::<[usize; 11]>().read() };
        assert!(entries.iter().all(|entry| *entry != 0));
        let mut distinct = entries.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 11);
        // Two of them by their places: a receive, and the flush that cancels it.
        type Receive = unsafe extern "C" fn(*mut NDK_QP, PVOID, *const NDK_SGE, ULONG) -> NTSTATUS;
        // SAFETY: entries 4 and 2 of the table have these types.
        unsafe {
            assert_eq!(std::mem::transmute::<usize, Receive>(entries[4])(qp, 5 as PVOID, std::ptr::null(), 0), SUCCESS);
            std::mem::transmute::<usize, unsafe extern "C" fn(*mut NDK_QP)>(entries[2])(qp);
        }
        check(&bench.reap(end.receive_cq, 1), QpSize::default().context, RECEIVE, CANCELLED, 5..6);
        close!(bench, qp => NdkCloseQp);
        end.close(&bench);
    }
    bench.close();
}

#[test]
fn create_qp_28_table_and_reserved_block_belong_to_the_consumer() {
    static TRAPPED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn trap() -> NTSTATUS {
        TRAPPED.fetch_add(1, Ordering::Relaxed);
        INTERNAL_ERROR
    }
    static TRAPS: [unsafe extern "C" fn() -> NTSTATUS; 16] = [trap; 16];
    /// Puts traps in place of a table, which it returns, and marks the reserved block.
    fn set_traps<D>(header: &mut NDK_OBJECT_HEADER, dispatch: &mut *const D) -> *const D {
        header.NdkReserved.rf = MARKS.map(|mark| mark as PVOID);
        std::mem::replace(dispatch, TRAPS.as_ptr().cast())
    }
    const MARKS: [usize; 4] = [0xDEAD_0001, usize::MAX, 0xDEAD_0003, 1];

    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let end = ends[0];
    let slot = bench.slot();
    // SAFETY: the objects are live, and header and table are the consumer's. Tables are put back before this test calls through them.
    let (status, tables) = unsafe {
        let pd = set_traps(&mut (*end.pd).Header, &mut (*end.pd).Dispatch);
        let cqs = [end.receive_cq, end.initiator_cq].map(|cq| set_traps(&mut (*cq).Header, &mut (*cq).Dispatch));
        let (receive_cq, initiator_cq) = (end.receive_cq, end.initiator_cq);
        let create_qp = (*pd).NdkCreateQp.unwrap();
        let context = 28 as PVOID;
        let status = create_qp(end.pd, receive_cq, initiator_cq, context, 4, 4, 1, 1, 8, Some(on_created), slot.context(), null_mut());
        (status, (pd, cqs))
    };
    let qp: *mut NDK_QP = bench.created(status, slot);
    // SAFETY: as above.
    let table = unsafe {
        (*end.pd).Dispatch = tables.0;
        ((*end.receive_cq).Dispatch, (*end.initiator_cq).Dispatch) = (tables.1[0], tables.1[1]);
        &*set_traps(&mut (*qp).Header, &mut (*qp).Dispatch)
    };
    let peer = ends[1].qp(&bench, QpSize::default());
    let connected = bench.connect([qp, peer]);
    // SAFETY: the QP is live.
    unsafe {
        assert_eq!(table.NdkReceive.unwrap()(qp, 1 as PVOID, std::ptr::null(), 0), SUCCESS);
        assert_eq!(table.NdkWrite.unwrap()(qp, 2 as PVOID, std::ptr::null(), 0, 0, 0, 0), SUCCESS);
    }
    check(&bench.reap(end.initiator_cq, 1), 28, WRITE, SUCCESS, 2..3);
    // SAFETY: as above.
    unsafe { table.NdkFlush.unwrap()(qp) };
    check(&bench.reap(end.receive_cq, 1), 28, RECEIVE, CANCELLED, 1..2);
    bench.settle();
    // SAFETY: the objects are live.
    let (marks, dispatch) = unsafe {
        let headers = [&(*qp).Header, &(*end.pd).Header, &(*end.receive_cq).Header, &(*end.initiator_cq).Header];
        (headers.map(|header| header.NdkReserved.rf.map(|mark| mark as usize)), (*qp).Dispatch)
    };
    assert_eq!(marks, [MARKS; 4]);
    assert_eq!(dispatch, TRAPS.as_ptr().cast());
    let closed = bench.close_object(table.NdkCloseQp, qp.cast());
    close!(bench, peer => NdkCloseQp, connected.listener => NdkCloseListener,
        connected.connectors[0] => NdkCloseConnector, connected.connectors[1] => NdkCloseConnector);
    bench.closed(closed);
    assert_eq!(TRAPPED.load(Ordering::Relaxed), 0, "calls through the table of an object");
    ends.into_iter().for_each(|end| end.close(&bench));
    bench.close();
}

#[test]
fn create_qp_29_contexts_come_back_bit_by_bit() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let requests = [0, 1, u64::MAX, 0xFFFF_FFFF_0000_0000, 0x0123_4567_89AB_CDEF];
    for contexts in [[0, u64::MAX], [0x8000_0000_0000_0001, 0xFEDC_BA98_7654_3210]] {
        let qps = [0, 1].map(|side| ends[side].qp(&bench, QpSize { context: contexts[side], ..QpSize::default() }));
        let connected = bench.connect(qps);
        for side in [0, 1] {
            for request in requests {
                assert_eq!((receive(qps[side], request, &[]), write_nothing(&bench, qps[side], request)), (SUCCESS, SUCCESS));
            }
            let written = bench.reap(ends[side].initiator_cq, requests.len());
            assert_eq!(written.iter().map(|entry| (entry.qp, entry.request)).collect::<Vec<_>>(), requests.map(|r| (contexts[side], r)));
        }
        for side in [0, 1] {
            ndk!(qps[side], NdkFlush());
            // By the older of both calls.
            let mut received = Vec::new();
            bench.wait("cancelled receives", || {
                received.extend(take_plain(ends[side].receive_cq, 2));
                (received.len() == requests.len()).then_some(())
            });
            assert_eq!(received, requests.map(|request| (CANCELLED, contexts[side], request)));
        }
        close_connected(&bench, &connected);
    }
    ends.into_iter().for_each(|end| end.close(&bench));
    bench.close();
}

#[test]
fn create_qp_30_receives_complete_on_the_receive_cq_and_all_else_on_the_initiator_cq() {
    let mut bench = Bench::new();
    let pair = Pair::new(&mut bench, QpSize { context: 30, ..QpSize::default() });
    let (end, qp) = (pair.ends[0], pair.connected.qps[0]);
    let (source, sink) = pair.regions(&bench);
    for request in 0..3 {
        assert_eq!(receive(qp, request, &[]), SUCCESS);
    }
    // Two that succeed, one that fails, and one behind it, which is cancelled.
    let tokens = [sink.token, sink.token, sink.token ^ 0x40_0000, sink.token];
    for (request, token) in (10..).zip(tokens) {
        let flags = if request == 13 { 0 } else { NDK_OP_FLAG_DEFER };
        assert_eq!(bench.write(qp, request, &[source.sge(0, 8)], sink.va(0), token, flags), SUCCESS);
    }
    let statuses: Vec<_> = bench.reap(end.initiator_cq, 4).iter().map(|entry| (entry.request, entry.status, entry.operation)).collect();
    let expected = [SUCCESS, SUCCESS, ACCESS_VIOLATION, CANCELLED];
    assert_eq!(statuses, (10..).zip(expected).map(|(request, status)| (request, status, WRITE)).collect::<Vec<_>>());
    check(&bench.reap(end.receive_cq, 3), 30, RECEIVE, CANCELLED, 0..3);
    bench.settle();
    pair.check_empty(&bench);
    close!(bench, source.mr => NdkCloseMr, sink.mr => NdkCloseMr);
    pair.close(&bench);
    bench.close();
}

#[test]
fn create_qp_31_a_new_qp_is_not_connected_and_takes_no_initiator_request() {
    let bench = Bench::new();
    let end = End::new(&bench, 0);
    let qp = end.qp(&bench, QpSize::default());
    let (context, none) = (1 as PVOID, std::ptr::null());
    let statuses = [
        ndk!(qp, NdkSend(context, none, 0, 0)),
        ndk!(qp, NdkBind(context, null_mut(), null_mut(), null_mut(), 0, 0)),
        ndk!(qp, NdkFastRegister(context, null_mut(), 0, std::ptr::null(), 0, 0, null_mut(), 0)),
        ndk!(qp, NdkInvalidate(context, null_mut(), 0)),
        ndk!(qp, NdkRead(context, none, 0, 0, 0, 0)),
        ndk!(qp, NdkWrite(context, none, 0, 0, 0, 0)),
        ndk!(qp, NdkWrite(context, none, 0, 0, 0, NDK_OP_FLAG_INLINE | NDK_OP_FLAG_DEFER)),
        ndk!(qp, NdkSendAndInvalidate(context, none, 0, 0, 0)),
    ];
    assert_eq!(statuses, [CONNECTION_INVALID; 8]);
    // Nor does the flush find one of them.
    ndk!(qp, NdkFlush());
    bench.settle();
    check_empty(&bench, &[end.receive_cq, end.initiator_cq]);
    close!(bench, qp => NdkCloseQp);
    end.close(&bench);
    bench.close();
}

#[test]
fn create_qp_32_receives_are_taken_at_once_and_survive_until_the_qp_is_connected() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let qps = [0, 1].map(|side| ends[side].qp(&bench, QpSize { context: 32, receives: 6, ..QpSize::default() }));
    for qp in qps {
        assert_eq!(fill(6, |request| receive(qp, request, &[])), FULL);
    }
    let pair = Pair::of(&mut bench, ends, qps);
    assert_eq!(write_nothing(&bench, qps[0], 1), SUCCESS);
    bench.reap(ends[0].initiator_cq, 1);
    bench.settle();
    pair.check_empty(&bench);
    for (end, qp) in ends.iter().zip(qps) {
        assert_eq!(receive(qp, 9, &[]), FULL, "they are still there");
        ndk!(qp, NdkFlush());
        check(&bench.reap(end.receive_cq, 6), 32, RECEIVE, CANCELLED, 0..6);
    }
    pair.close(&bench);
    bench.close();
}

#[test]
fn create_qp_33_a_flush_of_an_unconnected_qp_cancels_its_receives() {
    let bench = Bench::new();
    let end = End::new(&bench, 0);
    let qp = end.qp(&bench, QpSize { context: 33, ..QpSize::default() });
    let other = end.qp(&bench, QpSize { context: 34, ..QpSize::default() });
    for qp in [qp, other] {
        assert_eq!((receive(qp, 0, &[]), receive(qp, 1, &[])), (SUCCESS, SUCCESS));
    }
    ndk!(end.receive_cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    rest(&bench);
    assert_eq!(end.notified[0].calls(), []);
    ndk!(qp, NdkFlush());
    bench.settle();
    assert_eq!(end.notified[0].calls(), [Call::Notified(SUCCESS)]);
    check(&bench.take(end.receive_cq, 9), 33, RECEIVE, CANCELLED, 0..2);
    // choice: a QP that was flushed takes no receives any more, and says CONNECTION_INVALID.
    assert_eq!(receive(qp, 2, &[]), CONNECTION_INVALID);
    assert_eq!(receive(other, 2, &[]), SUCCESS);
    close!(bench, qp => NdkCloseQp, other => NdkCloseQp);
    end.close(&bench);
    bench.close();
}

#[test]
fn create_qp_34_exactly_as_many_requests_as_asked_for_can_be_outstanding() {
    let mut bench = Bench::new();
    for depth in [1, 5, 64, 512] {
        let context = 3_400 + depth;
        let size = QpSize { context, receives: depth as u32, initiators: depth as u32, ..QpSize::default() };
        let pair = Pair::new(&mut bench, size);
        let (end, qp) = (pair.ends[0], pair.connected.qps[0]);
        for first in [0, depth] {
            // choice: one more is refused with NO_MORE_ENTRIES, although the ring is a power of two.
            assert_eq!(fill(depth, |request| write_later(&bench, qp, first + request)), FULL);
            // The failure has shown the deferred ones to the card.
            check(&bench.reap(end.initiator_cq, depth as usize), context, WRITE, SUCCESS, first..first + depth);
        }
        // A place is free again for each completion that was taken, and for no other.
        assert_eq!(fill(depth, |request| write_later(&bench, qp, request)), FULL);
        bench.settle();
        assert_eq!(write_later(&bench, qp, 9), FULL);
        check(&bench.reap(end.initiator_cq, 1), context, WRITE, SUCCESS, 0..1);
        assert_eq!(fill(1, |_| write_later(&bench, qp, depth)), FULL);
        check(&bench.reap(end.initiator_cq, depth as usize), context, WRITE, SUCCESS, 1..depth + 1);

        assert_eq!(fill(depth, |request| receive(qp, request, &[])), FULL);
        ndk!(qp, NdkFlush());
        check(&bench.reap(end.receive_cq, depth as usize), context, RECEIVE, CANCELLED, 0..depth);
        pair.check_empty(&bench);
        pair.close(&bench);
    }
    bench.close();
}

#[test]
fn create_qp_35_the_two_queues_share_no_slots() {
    let mut bench = Bench::new();
    for (receives, initiators) in [(3, 5), (7, 2), (0, 4), (4, 0)] {
        let pair = Pair::new(&mut bench, QpSize { context: 35, receives, initiators, ..QpSize::default() });
        let (end, qp) = (pair.ends[0], pair.connected.qps[0]);
        // In turns, until both are full.
        let (mut received, mut written) = (0, 0);
        for _ in 0..10 {
            received += u64::from(receive(qp, received, &[]) == SUCCESS);
            written += u64::from(write_later(&bench, qp, written) == SUCCESS);
        }
        assert_eq!((received, written), (receives.into(), initiators.into()));
        check(&bench.reap(end.initiator_cq, written as usize), 35, WRITE, SUCCESS, 0..written);
        assert_eq!(receive(qp, 9, &[]), FULL, "slots of the other queue");
        ndk!(qp, NdkFlush());
        check(&bench.reap(end.receive_cq, received as usize), 35, RECEIVE, CANCELLED, 0..received);
        pair.close(&bench);
    }
    bench.close();
}

#[test]
fn create_qp_36_requests_have_up_to_the_sges_asked_for_and_inline_ones_any_number() {
    let mut bench = Bench::new();
    for sges in [1, 2, 3, 6] {
        let context = 3_600 + u64::from(sges);
        let pair = Pair::new(&mut bench, QpSize { context, receive_sges: sges, initiator_sges: sges, ..QpSize::default() });
        let (source, sink) = pair.regions(&bench);
        let (end, qp) = (pair.ends[0], pair.connected.qps[0]);
        let pieces: Vec<_> = (0..=sges).map(|index| source.sge(100 * index as usize, 3)).collect();
        let data: Vec<u8> = (0..=sges as usize).flat_map(|index| source.read(100 * index, 3)).collect();
        let most = sges as usize;
        let write = |request, pieces: &[NDK_SGE], flags| bench.write(qp, request, pieces, sink.va(1), sink.token, flags);
        assert_eq!(write(1, &pieces, 0), TOO_MANY_SGES);
        assert_eq!(write(2, &pieces[..most], 0), SUCCESS);
        check(&bench.reap(end.initiator_cq, 1), context, WRITE, SUCCESS, 2..3);
        assert_eq!(sink.read(0, 3 * most + 2), [&[0xEE], &data[..3 * most], &[0xEE]].concat());
        // choice: the number of pieces of inline data has no limit of its own.
        let many: Vec<_> = (0..30).map(|index| NDK_SGE { MemoryRegionToken: 0xBAD, ..source.sge(100 + index, 1) }).collect();
        assert_eq!(write(3, &many, NDK_OP_FLAG_INLINE), SUCCESS);
        check(&bench.reap(end.initiator_cq, 1), context, WRITE, SUCCESS, 3..4);
        assert_eq!(sink.read(0, 32), [&[0xEE], &source.read(100, 30)[..], &[0xEE]].concat());

        assert_eq!(receive(qp, 4, &pieces), TOO_MANY_SGES);
        assert_eq!(receive(qp, 5, &pieces[..most]), SUCCESS);
        ndk!(qp, NdkFlush());
        check(&bench.reap(end.receive_cq, 1), context, RECEIVE, CANCELLED, 5..6);
        close!(bench, source.mr => NdkCloseMr, sink.mr => NdkCloseMr);
        pair.close(&bench);
    }
    bench.close();
}

#[test]
fn create_qp_37_inline_data_up_to_the_size_asked_for_is_taken() {
    let mut bench = Bench::new();
    for limit in [0, 1, 31, 32, 33, 96] {
        let context = 3_700 + limit as u64;
        let pair = Pair::new(&mut bench, QpSize { context, inline_bytes: limit as u32, ..QpSize::default() });
        let (source, sink) = pair.regions(&bench);
        let (end, qp) = (pair.ends[0], pair.connected.qps[0]);
        assert_eq!(write_inline(&bench, qp, 1, &vec![1; limit + 1], sink.va(0), sink.token), TOO_LONG);
        for (request, len) in (2..).zip([limit, limit.min(1)]) {
            // Not registered, and overwritten as soon as the call is over.
            let mut data: Vec<u8> = (0..len).map(|byte| byte as u8 ^ 0x5A).collect();
            let expected = [&data[..], &[0xEE]].concat();
            assert_eq!(write_inline(&bench, qp, request, &data, sink.va(200 * request as usize), sink.token), SUCCESS);
            data.fill(0);
            check(&bench.reap(end.initiator_cq, 1), context, WRITE, SUCCESS, request..request + 1);
            assert_eq!(sink.read(200 * request as usize, len + 1), expected);
        }
        // choice: a Send, which this build does not execute, gives NOT_SUPPORTED, with inline data as without.
        let sge = source.sge(0, limit as u32);
        assert_eq!(ndk!(qp, NdkSend(null_mut(), &sge, 1, NDK_OP_FLAG_INLINE)), NOT_SUPPORTED);
        pair.check_empty(&bench);
        close!(bench, source.mr => NdkCloseMr, sink.mr => NdkCloseMr);
        pair.close(&bench);
    }
    bench.close();
}

#[test]
fn create_qp_38_reads_have_the_adapters_limit_which_is_none_at_all() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    assert_eq!((bench.info(0).MaxReadRequestSge, bench.info(0).MaxOutboundReadLimit), (0, 0));
    let qps = [0, 1].map(|side| ends[side].qp(&bench, QpSize { context: 38, initiator_sges: 6, ..QpSize::default() }));
    let read = |sges: &[NDK_SGE]| ndk!(qps[0], NdkRead(null_mut(), sges.as_ptr(), sges.len() as u32, 0, 0, 0));
    let sges = [NDK_SGE::default(); 2];
    assert_eq!([read(&[]), read(&sges[..1]), read(&sges)], [CONNECTION_INVALID; 3]);
    let pair = Pair::of(&mut bench, ends, qps);
    // choice: a Read, which this build does not execute, gives NOT_SUPPORTED on a connected QP whatever its number of SGEs.
    assert_eq!([read(&[]), read(&sges[..1]), read(&sges)], [NOT_SUPPORTED; 3]);
    // As each failure of a post, this one shows what was deferred.
    assert_eq!((write_later(&bench, qps[0], 1), read(&[])), (SUCCESS, NOT_SUPPORTED));
    check(&bench.reap(ends[0].initiator_cq, 1), 38, WRITE, SUCCESS, 1..2);
    pair.check_empty(&bench);
    pair.close(&bench);
    bench.close();
}

#[test]
fn create_qp_39_the_limits_of_a_qp_never_change() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let size = QpSize { context: 39, receives: 3, initiators: 3, receive_sges: 1, initiator_sges: 1, inline_bytes: 4 };
    let qps = [0, 1].map(|side| ends[side].qp(&bench, size));
    let (qp, end, two) = (qps[0], ends[0], [NDK_SGE::default(); 2]);
    assert_eq!(receive(qp, 9, &two), TOO_MANY_SGES);
    // Not by bigger QPs beside it, nor by the connection, nor by requests, around the ring and back.
    let bigger = QpSize { receives: 512, initiators: 512, receive_sges: 6, initiator_sges: 6, inline_bytes: 96, ..size };
    let others = [0, 1].map(|_| end.qp(&bench, bigger));
    assert_eq!(fill(3, |request| receive(qp, request, &[])), FULL);
    let pair = Pair::of(&mut bench, ends, qps);
    for first in (0..60).step_by(3) {
        assert_eq!(fill(3, |request| write_later(&bench, qp, first + request)), FULL);
        check(&bench.reap(end.initiator_cq, 3), 39, WRITE, SUCCESS, first..first + 3);
        assert_eq!((receive(qp, 9, &[]), receive(qp, 9, &two)), (FULL, TOO_MANY_SGES));
        assert_eq!(bench.write(qp, 9, &two, 0, 0, 0), TOO_MANY_SGES);
        assert_eq!(write_inline(&bench, qp, 9, &[0; 5], 0, 0), TOO_LONG);
    }
    ndk!(qp, NdkFlush());
    check(&bench.reap(end.receive_cq, 3), 39, RECEIVE, CANCELLED, 0..3);
    close_all(&bench, &others);
    pair.close(&bench);
    bench.close();
}

#[test]
fn create_qp_40_a_creation_makes_no_completion_and_no_notification() {
    let bench = Bench::new();
    let end = End::new(&bench, 0);
    let count = || end.notified.map(Slot::count);
    ndk!(end.receive_cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    ndk!(end.initiator_cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    let qps = [0, 1, 2].map(|_| end.qp(&bench, QpSize::default()));
    check_refused(&bench, &end, QpSize { receives: 513, ..QpSize::default() }, INVALID_PARAMETER);
    close!(bench, qps[0] => NdkCloseQp);
    bench.settle();
    assert_eq!(count(), [0, 0]);
    check_empty(&bench, &[end.receive_cq, end.initiator_cq]);
    // The arm is still in force.
    assert_eq!(receive(qps[1], 0, &[]), SUCCESS);
    ndk!(qps[1], NdkFlush());
    bench.settle();
    assert_eq!(count(), [1, 0]);
    close_all(&bench, &qps[1..]);
    end.close(&bench);
    bench.close();
}

// Lifetime.

#[test]
fn create_qp_41_closes_of_the_domain_and_of_both_cqs_wait_for_the_qp() {
    let bench = Bench::new();
    let end = End::new(&bench, 0);
    let qp = end.qp(&bench, QpSize::default());
    assert_eq!(ndk!(end.pd, NdkClosePd(Some(note_closed), letter('d'))), PENDING);
    assert_eq!(ndk!(end.receive_cq, NdkCloseCq(Some(note_closed), letter('r'))), PENDING);
    assert_eq!(ndk!(end.initiator_cq, NdkCloseCq(Some(note_closed), letter('i'))), PENDING);
    bench.settle();
    assert_eq!(closed(), "");
    // Their closes have no effect on what needs them.
    assert_eq!(receive(qp, 1, &[]), SUCCESS);
    assert_eq!(ndk!(qp, NdkCloseQp(Some(note_closed), letter('q'))), PENDING);
    bench.wait("four closes", || (closed().len() == 4).then_some(()));
    assert!(closed().starts_with('q'), "{}", closed());
    bench.settle();
    assert_eq!(closed().len(), 4);
    bench.close();
}

#[test]
fn create_qp_42_the_close_of_a_qp_waits_for_its_connector() {
    let mut bench = Bench::new();
    let pair = Pair::new(&mut bench, QpSize { context: 42, ..QpSize::default() });
    let (qps, connectors) = (pair.connected.qps, pair.connected.connectors);
    assert_eq!(receive(qps[0], 1, &[]), SUCCESS);
    for (qp, name) in qps.into_iter().zip(['a', 'p']) {
        assert_eq!(ndk!(qp, NdkCloseQp(Some(note_closed), letter(name))), PENDING);
    }
    bench.settle();
    assert_eq!(closed(), "", "neither the active nor the passive one");
    // It flushes all the same.
    check(&bench.reap(pair.ends[0].receive_cq, 1), 42, RECEIVE, CANCELLED, 1..2);
    for (connector, name) in connectors.into_iter().zip(['A', 'P']) {
        assert_eq!(ndk!(connector, NdkCloseConnector(Some(note_closed), letter(name))), PENDING);
    }
    bench.wait("four closes", || (closed().len() == 4).then_some(()));
    let order = closed();
    assert!(order.find('A') < order.find('a') && order.find('P') < order.find('p'), "{order}");

    // One that was given to a connector whose attempt failed is held as well.
    let (qp, connector, slot) = (pair.ends[0].qp(&bench, QpSize::default()), connector(&bench, 0), bench.slot());
    assert_eq!(connect(connector, qp, ips(&bench), 6_042, slot), PENDING);
    assert_eq!(bench.done(PENDING, slot), CONNECTION_REFUSED);
    assert_eq!(ndk!(qp, NdkCloseQp(Some(note_closed), letter('x'))), PENDING);
    bench.settle();
    // choice: a connector holds its QP from NdkConnect to its own close, also when the attempt fails.
    assert_eq!(closed().len(), 4);
    assert_eq!(ndk!(connector, NdkCloseConnector(Some(note_closed), letter('X'))), PENDING);
    bench.wait("two closes", || closed().ends_with("Xx").then_some(()));
    close!(bench, pair.connected.listener => NdkCloseListener);
    pair.ends.into_iter().for_each(|end| end.close(&bench));
    bench.close();
}

#[test]
fn create_qp_43_a_close_flushes_and_waits_for_callbacks_that_run() {
    // Nothing arrives, so nothing is done before the close.
    let mut bench = Bench::with_link(LinkConfig { loss_ppm: 1_000_000, ..LinkConfig::default() });
    let pair = Pair::new(&mut bench, QpSize { context: 43, ..QpSize::default() });
    let (end, qps) = (pair.ends[0], pair.connected.qps);
    let flags = [0, NDK_OP_FLAG_SILENT_SUCCESS, NDK_OP_FLAG_DEFER, NDK_OP_FLAG_DEFER | NDK_OP_FLAG_SILENT_SUCCESS];
    for (request, flags) in (0..).zip(flags) {
        assert_eq!(bench.write(qps[0], request, &[], 0, 0, flags), SUCCESS);
        assert_eq!(receive(qps[0], request, &[]), SUCCESS);
    }
    bench.settle();
    pair.check_empty(&bench);
    let waits_for_connector = start_close(&bench, qps[0]);
    check(&bench.reap(end.initiator_cq, 4), 43, WRITE, CANCELLED, 0..4);
    check(&bench.reap(end.receive_cq, 4), 43, RECEIVE, CANCELLED, 0..4);
    bench.settle();
    assert_eq!(waits_for_connector.count(), 0);
    close!(bench, pair.connected.connectors[0] => NdkCloseConnector);
    bench.closed(waits_for_connector);

    // choice: completions of a closed QP stay in the CQ until they are taken, in number and order as posted.
    let alone = end.qp(&bench, QpSize { context: 44, ..QpSize::default() });
    assert_eq!((receive(alone, 0, &[]), receive(alone, 1, &[])), (SUCCESS, SUCCESS));
    close!(bench, alone => NdkCloseQp);
    check(&bench.take(end.receive_cq, 9), 44, RECEIVE, CANCELLED, 0..2);

    // The callback that runs is that of its creation; another thread closes the QP meanwhile.
    let (slot, adapter, world) = (bench.slot(), Anywhere(bench.sides[0].adapter), Arc::clone(&bench.world));
    let (_, (status, calls)) = create_and(&bench, &end, QpSize::default(), move |qp| {
        let qp = Anywhere(qp);
        let close = || {
            let status = ndk!(*qp.get(), NdkCloseQp(Some(on_closed), slot.context()));
            for _ in 0..50 {
                world.run(100).unwrap();
                // SAFETY: the adapter is open.
                unsafe { VerbenaProcessEvents(*adapter.get()) };
            }
            (status, slot.count())
        };
        thread::scope(|scope| scope.spawn(close).join().unwrap())
    });
    assert_eq!((status, calls), (PENDING, 0));
    bench.closed(slot);
    close!(bench, qps[1] => NdkCloseQp, pair.connected.connectors[1] => NdkCloseConnector, pair.connected.listener => NdkCloseListener);
    pair.ends.into_iter().for_each(|end| end.close(&bench));
    bench.close();
}

#[test]
fn create_qp_44_a_qp_serves_one_connection_in_its_life() {
    let mut bench = Bench::new();
    let pair = Pair::new(&mut bench, QpSize::default());
    let (qps, ips) = (pair.connected.qps, ips(&bench));
    let (listener, requests) = listener(&bench, 6_044);
    let (active, fresh) = (connector(&bench, 0), pair.ends[0].qp(&bench, QpSize::default()));
    // choice: a QP that is connected, or ever was, is refused inline with CONNECTION_ACTIVE; the connector stays as it was.
    assert_eq!(connect(active, qps[0], ips, 6_044, bench.slot()), CONNECTION_ACTIVE, "while connected");
    let slots = [bench.slot(), bench.slot()];
    for (connector, slot) in pair.connected.connectors.into_iter().zip(slots) {
        assert_eq!(ndk!(connector, NdkDisconnect(Some(on_done), slot.context())), PENDING);
    }
    assert_eq!(slots.map(|slot| bench.done(PENDING, slot)), [SUCCESS; 2]);
    assert_eq!(write_nothing(&bench, qps[0], 1), CONNECTION_INVALID);
    assert_eq!(connect(active, qps[0], ips, 6_044, bench.slot()), CONNECTION_ACTIVE, "after the disconnect");
    close!(bench, pair.connected.connectors[0] => NdkCloseConnector);
    assert_eq!(connect(active, qps[0], ips, 6_044, bench.slot()), CONNECTION_ACTIVE, "and without its connector");
    bench.settle();
    assert_eq!(requests.calls(), [], "nobody was asked");

    let slot = bench.slot();
    assert_eq!(connect(active, fresh, ips, 6_044, slot), PENDING);
    let passive = requested(&bench, requests, 0);
    assert_eq!(accept(passive, qps[1], bench.slot()), CONNECTION_ACTIVE);
    // The request still stands.
    let unused = pair.ends[1].qp(&bench, QpSize::default());
    assert_eq!(accept(passive, unused, bench.slot()), PENDING);
    assert_eq!(bench.done(PENDING, slot), SUCCESS);
    close!(bench, active => NdkCloseConnector, passive => NdkCloseConnector,
        fresh => NdkCloseQp, unused => NdkCloseQp, listener => NdkCloseListener, qps[0] => NdkCloseQp, qps[1] => NdkCloseQp,
        pair.connected.connectors[1] => NdkCloseConnector, pair.connected.listener => NdkCloseListener);
    pair.ends.into_iter().for_each(|end| end.close(&bench));
    bench.close();
}

#[test]
fn create_qp_45_a_failed_attempt_to_connect_leaves_the_qps_for_another() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let qps = [0, 1].map(|side| ends[side].qp(&bench, QpSize { context: 45, receives: 2, ..QpSize::default() }));
    qps.into_iter().for_each(|qp| assert_eq!(fill(2, |request| receive(qp, request, &[])), FULL));
    let ips = ips(&bench);
    let (listener, requests) = listener(&bench, 6_045);

    // Inline, and by nobody who listens.
    let slot = bench.slot();
    let actives = [0; 4].map(|side| connector(&bench, side));
    assert_eq!(connect(actives[0], qps[0], [ips[1], ips[1]], 6_045, slot), nt(NtStatus::INVALID_ADDRESS));
    assert_eq!(connect(actives[0], qps[0], ips, 6_046, slot), PENDING);
    assert_eq!(bench.done(PENDING, slot), CONNECTION_REFUSED);

    // By the passive side, before and after it has accepted; by the active side, which both QPs are prepared for by then.
    let slot = bench.slot();
    assert_eq!(connect(actives[1], qps[0], ips, 6_045, slot), PENDING);
    let rejecting = requested(&bench, requests, 0);
    assert_eq!(ndk!(rejecting, NdkReject(std::ptr::null(), 0)), SUCCESS);
    assert_eq!(bench.done(PENDING, slot), CONNECTION_REFUSED);
    let (slot, accepted) = (bench.slot(), bench.slot());
    assert_eq!(connect(actives[2], qps[0], ips, 6_045, slot), PENDING);
    let rejected = requested(&bench, requests, 1);
    assert_eq!(accept(rejected, qps[1], accepted), PENDING);
    assert_eq!(bench.done(PENDING, slot), SUCCESS);
    assert_eq!(ndk!(actives[2], NdkReject(std::ptr::null(), 0)), SUCCESS);
    assert_eq!(bench.done(PENDING, accepted), CONNECTION_REFUSED);
    let (slot, accepted) = (bench.slot(), bench.slot());
    assert_eq!(connect(actives[3], qps[0], ips, 6_045, slot), PENDING);
    let closing = requested(&bench, requests, 2);
    assert_eq!(accept(closing, qps[1], accepted), PENDING);
    assert_eq!(bench.done(PENDING, slot), SUCCESS);
    close!(bench, closing => NdkCloseConnector);
    assert_eq!(accepted.calls(), [Call::Done(nt(NtStatus::CONNECTION_ABORTED))]);

    // They are as they were: not connected, with their receives.
    for qp in qps {
        assert_eq!((write_nothing(&bench, qp, 1), receive(qp, 9, &[])), (CONNECTION_INVALID, FULL));
    }
    let pair = Pair::of(&mut bench, ends, qps);
    for (end, qp) in ends.iter().zip(qps) {
        assert_eq!(write_nothing(&bench, qp, 1), SUCCESS);
        check(&bench.reap(end.initiator_cq, 1), 45, WRITE, SUCCESS, 1..2);
    }
    for (end, qp) in ends.iter().zip(qps) {
        ndk!(qp, NdkFlush());
        check(&bench.reap(end.receive_cq, 2), 45, RECEIVE, CANCELLED, 0..2);
    }
    for connector in actives.into_iter().chain([rejecting, rejected]) {
        close!(bench, connector => NdkCloseConnector);
    }
    close!(bench, listener => NdkCloseListener);
    pair.close(&bench);
    bench.close();
}

#[test]
fn create_qp_46_hundreds_of_qps_come_and_go_and_leave_nothing() {
    const QPS: u32 = 3;
    let mut bench = Bench::new();
    // As many numbers as QPs, so that one that is not given back is missing at once.
    Unruly::take(&mut bench, QPS);
    let end = End::new(&bench, 0);
    let mappings = bench.sides[0].card.mappings();
    for round in 0..100 {
        let slots = [0, 1, 2].map(|_| bench.slot());
        let sizes = [QpSize::default(), QpSize { initiator_sges: 6, ..QpSize::default() }, QpSize { receives: 512, ..QpSize::default() }];
        for (slot, size) in slots.iter().zip(sizes) {
            assert_eq!(end.try_qp(&bench, size, slot), PENDING, "round {round}");
        }
        assert_eq!(end.try_qp(&bench, QpSize::default(), bench.slot()), NO_RESOURCES);
        let qps = all_created(&bench, &slots);
        assert_eq!(receive(qps[1], round, &[]), SUCCESS);
        close_all(&bench, &qps);
        check(&bench.take(end.receive_cq, 9), QpSize::default().context, RECEIVE, CANCELLED, round..round + 1);
        assert_eq!(bench.sides[0].card.mappings(), mappings, "round {round}");
    }
    end.close(&bench);
    assert!(bench.sides[0].card.mappings() < mappings);
    bench.close();
}

// What QPs are made with.

/// A domain of a side, and a CQ for each queue.
#[derive(Clone, Copy)]
struct End {
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    /// Notifications of the receive CQ and of the initiator CQ.
    notified: [&'static Slot; 2],
}

impl End {
    fn new(bench: &Bench, side: usize) -> Self {
        let [receive, initiator] = [0, 1].map(|_| bench.cq(side, 1024));
        Self { pd: bench.pd(side), receive_cq: receive.0, initiator_cq: initiator.0, notified: [receive.1, initiator.1] }
    }

    fn both(bench: &Bench) -> [Self; 2] {
        [0, 1].map(|side| Self::new(bench, side))
    }

    fn try_qp(&self, bench: &Bench, size: QpSize, slot: &Slot) -> NTSTATUS {
        bench.try_qp(self.pd, self.receive_cq, self.initiator_cq, size, slot)
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

/// Two connected QPs with all that they need.
struct Pair {
    ends: [End; 2],
    connected: Connected,
}

impl Pair {
    #[track_caller]
    fn new(bench: &mut Bench, size: QpSize) -> Self {
        let ends = End::both(bench);
        let qps = ends.map(|end| end.qp(bench, size));
        Self::of(bench, ends, qps)
    }

    /// Connects what there is already.
    #[track_caller]
    fn of(bench: &mut Bench, ends: [End; 2], qps: [*mut NDK_QP; 2]) -> Self {
        Self { ends, connected: bench.connect(qps) }
    }

    /// Returns a source with bytes that differ, at side 0, and a sink of canaries at side 1.
    fn regions(&self, bench: &Bench) -> (Region, Region) {
        let source = bench.region(self.ends[0].pd, 4096, NDK_MR_FLAG_ALLOW_LOCAL_READ);
        source.fill(0, &(0..4096u32).map(|index| (index * 7 + index / 256) as u8).collect::<Vec<_>>());
        (source, bench.region(self.ends[1].pd, 4096, NDK_MR_FLAG_ALLOW_REMOTE_WRITE))
    }

    #[track_caller]
    fn check_empty(&self, bench: &Bench) {
        self.ends.iter().for_each(|end| check_empty(bench, &[end.receive_cq, end.initiator_cq]));
    }

    #[track_caller]
    fn close(self, bench: &Bench) {
        close_connected(bench, &self.connected);
        self.ends.into_iter().for_each(|end| end.close(bench));
    }
}

#[track_caller]
fn close_connected(bench: &Bench, connected: &Connected) {
    let (qps, connectors) = (connected.qps, connected.connectors);
    close!(bench, qps[0] => NdkCloseQp, qps[1] => NdkCloseQp, connectors[0] => NdkCloseConnector, connectors[1] => NdkCloseConnector,
        connected.listener => NdkCloseListener);
}

fn start_close(bench: &Bench, qp: *mut NDK_QP) -> &'static Slot {
    // SAFETY: the QP is live.
    bench.close_object(unsafe { (*(*qp).Dispatch).NdkCloseQp }, qp.cast())
}

#[track_caller]
fn close_all(bench: &Bench, qps: &[*mut NDK_QP]) {
    let slots: Vec<_> = qps.iter().map(|qp| start_close(bench, *qp)).collect();
    slots.into_iter().for_each(|slot| bench.closed(slot));
}

#[track_caller]
fn all_created(bench: &Bench, slots: &[&Slot]) -> Vec<*mut NDK_QP> {
    slots.iter().map(|slot| bench.created(PENDING, slot)).collect()
}

// Calls.

/// Calls `NdkCreateQp` with everything of the caller's choice.
fn create(end: &End, size: QpSize, completion: NDK_FN_CREATE_COMPLETION, context: PVOID, out: *mut *mut NDK_QP) -> NTSTATUS {
    let QpSize { context: qp_context, receives, initiators, receive_sges, initiator_sges, inline_bytes } = size;
    let (receive_cq, initiator_cq, qp_context) = (end.receive_cq, end.initiator_cq, qp_context as PVOID);
    ndk!(
        end.pd,
        NdkCreateQp(
            receive_cq,
            initiator_cq,
            qp_context,
            receives,
            initiators,
            receive_sges,
            initiator_sges,
            inline_bytes,
            completion,
            context,
            out
        )
    )
}

/// Creates a QP and returns it with what `act` makes of it. That runs inside the completion, out of which nothing may panic.
#[track_caller]
fn create_and<T: 'static>(bench: &Bench, end: &End, size: QpSize, act: impl FnOnce(*mut NDK_QP) -> T + 'static) -> (*mut NDK_QP, T) {
    type Act<T> = Box<dyn FnOnce(*mut NDK_QP) -> T>;
    struct Inside<T> {
        act: RefCell<Option<Act<T>>>,
        outcome: RefCell<Option<(NTSTATUS, *mut NDK_QP, T)>>,
    }
    unsafe extern "C" fn run<T>(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
        // SAFETY: the context is the one below, which lives for good and is of the thread that processes events.
        let inside = unsafe { &*context.cast::<Inside<T>>() };
        let act = inside.act.borrow_mut().take().expect("the one call");
        let made = act(object.cast());
        *inside.outcome.borrow_mut() = Some((status, object.cast(), made));
    }
    let inside: &Inside<T> = Box::leak(Box::new(Inside { act: RefCell::new(Some(Box::new(act))), outcome: RefCell::new(None) }));
    let context = std::ptr::from_ref(inside).cast_mut().cast();
    assert_eq!(create(end, size, Some(run::<T>), context, null_mut()), PENDING);
    let (status, qp, made) = bench.wait("a creation", || inside.outcome.borrow_mut().take());
    assert_eq!(status, SUCCESS);
    (qp, made)
}

fn receive(qp: *mut NDK_QP, request: u64, sges: &[NDK_SGE]) -> NTSTATUS {
    ndk!(qp, NdkReceive(request as PVOID, sges.as_ptr(), sges.len() as u32))
}

/// Posts a write of no bytes, which needs no region.
fn write_nothing(bench: &Bench, qp: *mut NDK_QP, request: u64) -> NTSTATUS {
    bench.write(qp, request, &[], 0, 0, 0)
}

/// As [`write_nothing`], and the card need not be told yet.
fn write_later(bench: &Bench, qp: *mut NDK_QP, request: u64) -> NTSTATUS {
    bench.write(qp, request, &[], 0, 0, NDK_OP_FLAG_DEFER)
}

fn write_inline(bench: &Bench, qp: *mut NDK_QP, request: u64, bytes: &[u8], to: u64, token: u32) -> NTSTATUS {
    let sge = NDK_SGE { Address: bytes.as_ptr() as u64, Length: bytes.len() as u32, MemoryRegionToken: 0xBAD };
    bench.write(qp, request, &[sge], to, token, NDK_OP_FLAG_INLINE)
}

/// Posts `count` requests from 0 on, each of which is taken, and returns the status of one more.
#[track_caller]
fn fill(count: u64, post: impl Fn(u64) -> NTSTATUS) -> NTSTATUS {
    for request in 0..count {
        assert_eq!(post(request), SUCCESS, "request {request} of {count}");
    }
    post(count)
}

/// Takes completions by the call that has no types.
fn take_plain(cq: *mut NDK_CQ, most: usize) -> Vec<(NTSTATUS, u64, u64)> {
    let mut results: Vec<NDK_RESULT> = Vec::with_capacity(most);
    let count = ndk!(cq, NdkGetCqResults(results.as_mut_ptr(), most as u32)) as usize;
    assert!(count <= most);
    // SAFETY: the provider has written so many.
    unsafe { results.set_len(count) };
    results.iter().map(|result| (result.Status, result.QPContext as u64, result.RequestContext as u64)).collect()
}

// Connections from side 0 to side 1, step by step.

fn ips(bench: &Bench) -> [Ipv4Addr; 2] {
    [bench.sides[0].ip, bench.sides[1].ip]
}

fn connector(bench: &Bench, side: usize) -> *mut NDK_CONNECTOR {
    let mut connector = null_mut();
    let slot = bench.slot();
    let status = ndk!(bench.sides[side].adapter, NdkCreateConnector(Some(on_created), slot.context(), &mut connector));
    assert_eq!(status, SUCCESS);
    connector
}

fn listener(bench: &Bench, port: u16) -> (*mut NDK_LISTENER, &'static Slot) {
    let mut listener = null_mut();
    let (requests, slot) = (bench.slot(), bench.slot());
    let adapter = bench.sides[1].adapter;
    let status = ndk!(adapter, NdkCreateListener(Some(on_requested), requests.context(), Some(on_created), slot.context(), &mut listener));
    assert_eq!(status, SUCCESS);
    let (at, at_bytes) = sockaddr((bench.sides[1].ip, port).into());
    assert_eq!(ndk!(listener, NdkListen(at.as_ptr().cast(), at_bytes, Some(on_done), slot.context())), SUCCESS);
    (listener, requests)
}

fn connect(connector: *mut NDK_CONNECTOR, qp: *mut NDK_QP, [from, to]: [Ipv4Addr; 2], port: u16, slot: &Slot) -> NTSTATUS {
    let ((from, from_bytes), (to, to_bytes)) = (sockaddr((from, 0).into()), sockaddr((to, port).into()));
    let (from, to) = (from.as_ptr().cast(), to.as_ptr().cast());
    ndk!(connector, NdkConnect(qp, from, from_bytes, to, to_bytes, 0, 0, std::ptr::null(), 0, Some(on_done), slot.context()))
}

/// Waits for request `index` of a listener.
#[track_caller]
fn requested(bench: &Bench, requests: &Slot, index: usize) -> *mut NDK_CONNECTOR {
    match bench.wait("a connect event", || requests.calls().get(index).copied()) {
        Call::Requested(connector) => connector as *mut NDK_CONNECTOR,
        other => panic!("{other:?}"),
    }
}

fn accept(connector: *mut NDK_CONNECTOR, qp: *mut NDK_QP, slot: &Slot) -> NTSTATUS {
    ndk!(connector, NdkAccept(qp, 0, 0, std::ptr::null(), 0, None, null_mut(), Some(on_done), slot.context()))
}

// What is looked at.

/// Checks that completions are those of these requests, in their order.
#[track_caller]
fn check(entries: &[Entry], qp: u64, operation: u32, status: NTSTATUS, requests: std::ops::Range<u64>) {
    let found: Vec<_> = entries.iter().map(|entry| (entry.qp, entry.operation, entry.status, entry.request)).collect();
    assert_eq!(found, requests.map(|request| (qp, operation, status, request)).collect::<Vec<_>>());
}

#[track_caller]
fn check_empty(bench: &Bench, cqs: &[*mut NDK_CQ]) {
    cqs.iter().for_each(|cq| assert_eq!(bench.take(*cq, 1), []));
}

/// Returns QP, request and operation of completions whose order between QPs is free.
fn sorted(entries: Vec<Entry>) -> Vec<(u64, u64, u32)> {
    let mut found: Vec<_> = entries.iter().map(|entry| (entry.qp, entry.request, entry.operation)).collect();
    found.sort_unstable();
    found
}

/// Checks that an unconnected QP, which is flushed by that, does what it can.
#[track_caller]
fn check_usable(bench: &Bench, end: &End, qp: *mut NDK_QP) {
    assert_eq!(receive(qp, 0x600D, &[]), SUCCESS);
    assert_eq!(write_nothing(bench, qp, 0), CONNECTION_INVALID);
    ndk!(qp, NdkFlush());
    check(&bench.reap(end.receive_cq, 1), QpSize::default().context, RECEIVE, CANCELLED, 0x600D..0x600E);
}

/// Checks that a creation fails inline: nobody is called, nothing is written or kept, and the card was not waited for.
#[track_caller]
fn check_refused(bench: &Bench, end: &End, size: QpSize, expected: NTSTATUS) {
    let (slot, out) = (bench.slot(), untouched());
    let state = || (bench.world.clock(), bench.sides.each_ref().map(|side| side.card.mappings()));
    let before = state();
    assert_eq!(create(end, size, Some(on_created), slot.context(), out), expected, "{size:?}");
    assert_eq!(state(), before);
    rest(bench);
    assert_eq!(slot.calls(), []);
    check_untouched(out);
}

/// Checks that one of the five numbers may reach its limit, and that what is above it is refused; `size` puts it into a size that is small elsewhere.
#[track_caller]
fn check_limit(limit: impl Fn(&NDK_ADAPTER_INFO) -> u32, size: impl Fn(u32, QpSize) -> QpSize) {
    for has_other_limits in [false, true] {
        let mut bench = Bench::new();
        if has_other_limits {
            // No two of them are the same.
            let card = Arc::new(Spy::new(Arc::clone(&bench.sides[0].card)));
            card.answer(CapQueues::OFFSET, CapQueues::reset().with(CapQueues::LOG_RQ, 6).with(CapQueues::LOG_SQ, 5).raw());
            card.answer(CapSges::OFFSET, CapSges::reset().with(CapSges::RECEIVE, 5).with(CapSges::INITIATOR, 3).raw());
            card.answer(CapInline::OFFSET, 40);
            bench.reopen(0, card, (2, 1));
        }
        let least = QpSize { context: 5, receives: 1, initiators: 1, receive_sges: 1, initiator_sges: 1, inline_bytes: 0 };
        let end = End::new(&bench, 0);
        let limit = limit(&bench.info(0));
        for value in [limit + 1, 2 * limit, 1 << 31, u32::MAX] {
            check_refused(&bench, &end, size(value, least), INVALID_PARAMETER);
        }
        let qp = end.qp(&bench, size(limit, least));
        close!(bench, qp => NdkCloseQp);
        end.close(&bench);
        bench.close();
    }
}

/// What stands where an object would be written.
const UNTOUCHED: usize = 0x5E57_1E10;

/// Returns a place for an object that nobody may write.
fn untouched() -> *mut *mut NDK_QP {
    Box::leak(Box::new(UNTOUCHED as *mut NDK_QP))
}

#[track_caller]
fn check_untouched(out: *mut *mut NDK_QP) {
    // SAFETY: the place was leaked.
    assert_eq!(unsafe { out.read() } as usize, UNTOUCHED);
}

/// Lets the cards run for longer than a command takes.
fn rest(bench: &Bench) {
    (0..10).for_each(|_| bench.step());
}

thread_local! {
    /// Context, status and object of creations.
    static CREATED: RefCell<Vec<(u64, NTSTATUS, usize)>> = const { RefCell::new(Vec::new()) };
    /// Letters of what was closed.
    static CLOSED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Notes the end of a creation whose context is any number.
unsafe extern "C" fn note_created(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    CREATED.with_borrow_mut(|created| created.push((context as u64, status, object as usize)));
}

fn created() -> Vec<(u64, NTSTATUS, usize)> {
    CREATED.with_borrow(Vec::clone)
}

fn take_created() -> Vec<(u64, NTSTATUS, usize)> {
    CREATED.take()
}

/// Notes the close of something whose context is a [`letter`].
unsafe extern "C" fn note_closed(context: PVOID) {
    CLOSED.with_borrow_mut(|closed| closed.push(context as usize as u8 as char));
}

fn letter(name: char) -> PVOID {
    name as usize as PVOID
}

fn closed() -> String {
    CLOSED.with_borrow(String::clone)
}

/// Objects of the interface, whose functions any thread may call.
struct Anywhere<T>(T);

// SAFETY: the interface's contract.
unsafe impl<T> Send for Anywhere<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Anywhere<T> {}

impl<T> Anywhere<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

// Cards that misbehave.

/// A verilated card that a test can make refuse, run out of memory, or vanish.
struct Unruly {
    card: Arc<SimDevice>,
    /// What it says of the number of its QPs, those that are never used included.
    qp_numbers: u32,
    /// Register writes so far.
    writes: AtomicU32,
    has_memory: AtomicBool,
    /// The next command reaches the card with a number that there is none of.
    spoils_next_command: AtomicBool,
    is_gone: AtomicBool,
}

impl Unruly {
    /// Takes the place of the card of side 0. As many QPs can exist at once.
    fn take(bench: &mut Bench, qps: u32) -> Arc<Self> {
        let card = Arc::new(Self {
            card: Arc::clone(&bench.sides[0].card),
            qp_numbers: qps + FIRST_QPN,
            writes: AtomicU32::new(0),
            has_memory: AtomicBool::new(true),
            spoils_next_command: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        });
        bench.reopen(0, Arc::clone(&card) as _, (2, 1));
        card
    }

    /// Is not there any more. What the card has under way ends first: its memory will be taken away.
    fn vanish(&self, bench: &Bench) {
        self.is_gone.store(true, Ordering::Relaxed);
        bench.world.run(5_000).expect("the cards keep their contracts");
    }
}

impl Bar for Unruly {
    fn read32(&self, offset: u32) -> u32 {
        match offset {
            _ if self.is_gone.load(Ordering::Relaxed) => u32::MAX,
            CapQps::OFFSET => self.qp_numbers,
            _ => self.card.read32(offset),
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if self.is_gone.load(Ordering::Relaxed) {
            return;
        }
        let is_spoiled = offset == CmdArgs::OFFSET && self.spoils_next_command.swap(false, Ordering::Relaxed);
        self.card.write32(offset, if is_spoiled { u32::MAX } else { value });
    }
}

impl Device for Unruly {
    fn bar(&self) -> &dyn Bar {
        self
    }

    fn alloc(self: Arc<Self>, len: usize, align: usize) -> Result<DmaBuffer, Error> {
        if !self.has_memory.load(Ordering::Relaxed) {
            return Err(Error::OutOfMemory { len_bytes: len, align });
        }
        Arc::clone(&self.card).alloc(len, align)
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, Error> {
        // SAFETY: the caller's.
        unsafe { self.card.map(ptr, len) }
    }

    fn unmap(&self, iova: u64, len: usize) {
        self.card.unmap(iova, len);
    }

    fn take_interrupts(&self) -> u32 {
        self.card.take_interrupts()
    }

    fn wait(&self) {
        self.card.wait();
    }
}
