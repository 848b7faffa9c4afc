//! Objects of the C interface: limits, creation and closing in any order.

use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{span, Event, Level, Metadata, Subscriber};
use verbena_abi::regs::{AbiVersion, CapCqs, CapInline, CapMessage, CapMrs, CapPds, CapQueues, CapReads, CapSges, WideCounter};
use verbena_host::ndk::NtStatus;
use verbena_ndk::abi::*;
use verbena_ndk::open::{VerbenaCloseNdkAdapter, VerbenaQueryStatistics};
use verbena_tests::ndk::{
    mdl, nt, on_closed, on_created, on_done, on_notified, open, Bench, Call, QpSize, INVALID_PARAMETER, PENDING, SUCCESS,
};
use verbena_tests::spy::Spy;
use verbena_tests::{close, ndk};

const NO_RESOURCES: NTSTATUS = nt(NtStatus::INSUFFICIENT_RESOURCES);

#[test]
fn a_write_from_one_consumer_to_the_other_and_everything_closed_in_an_unfriendly_order() {
    let mut bench = Bench::new();
    let (pds, cqs) = ([0, 1].map(|side| bench.pd(side)), [0, 1].map(|side| bench.cq(side, 32)));
    let qps = [0, 1].map(|side| bench.qp(pds[side], cqs[side].0, cqs[side].0, QpSize::default()));
    let source = bench.region(pds[0], 4096, NDK_MR_FLAG_ALLOW_LOCAL_READ);
    let sink = bench.region(pds[1], 4096, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    source.fill(100, b"hello over the wire");
    let connected = bench.connect(qps);
    assert_eq!(bench.write(qps[0], 77, &[source.sge(100, 19)], sink.va(2001), sink.token, 0), SUCCESS);
    let entry = bench.reap(cqs[0].0, 1)[0];
    assert_eq!((entry.status, entry.qp, entry.request, entry.operation), (SUCCESS, 0xC0FFEE, 77, 64));
    assert_eq!(sink.read(2000, 21), b"\xEEhello over the wire\xEE");
    // Antecedents first, all of it before one is waited for.
    close!(
        bench,
        pds[0] => NdkClosePd,
        cqs[0].0 => NdkCloseCq,
        pds[1] => NdkClosePd,
        cqs[1].0 => NdkCloseCq,
        connected.listener => NdkCloseListener,
        qps[0] => NdkCloseQp,
        qps[1] => NdkCloseQp,
        source.mr => NdkCloseMr,
        sink.mr => NdkCloseMr,
        connected.connectors[0] => NdkCloseConnector,
        connected.connectors[1] => NdkCloseConnector,
    );
    bench.close();
}

#[test]
fn an_adapter_is_opened_for_versions_that_there_are() {
    let bench = Bench::new();
    let device = bench.sides[0].device;
    for (major, minor) in [(0, 0), (1, 3), (2, 2), (3, 0)] {
        assert_eq!(open(device, major, minor), Err(nt(NtStatus::BAD_VERSION)), "{major}.{minor}");
    }
    bench.close();
}

#[test]
fn a_device_has_one_adapter_at_a_time() {
    let mut bench = Bench::new();
    let (device, pd) = (bench.sides[0].device, bench.pd(0));
    for _ in 0..2 {
        assert_eq!(open(device, 2, 1), Err(NO_RESOURCES));
    }
    // The one that there is hears of its events still.
    close!(bench, pd => NdkClosePd);
    // SAFETY: nothing that was created from the adapter is left.
    unsafe { VerbenaCloseNdkAdapter(device, bench.sides[0].adapter) };
    assert_eq!(open(device, 3, 0), Err(nt(NtStatus::BAD_VERSION)), "which opens nothing");
    bench.sides[0].adapter = open(device, 2, 1).expect("it is closed");
    let pd = bench.pd(0);
    close!(bench, pd => NdkClosePd);
    bench.close();
}

#[test]
fn the_limits_are_those_of_the_card() {
    let mut bench = Bench::new();
    let adapter = bench.sides[0].adapter;
    let mut size = 0;
    assert_eq!(ndk!(adapter, NdkQueryAdapterInfo(null_mut(), &mut size)), nt(NtStatus::BUFFER_TOO_SMALL));
    assert_eq!(size, 104);
    let info = bench.info(0);
    assert_eq!(info.Version, NDK_VERSION { Major: 2, Minor: 1 });
    assert_eq!((info.MaxInitiatorQueueDepth, info.MaxReceiveQueueDepth, info.MaxCqDepth), (512, 512, 65_536));
    assert_eq!((info.MaxInitiatorRequestSge, info.MaxReceiveRequestSge, info.MaxInlineDataSize), (6, 6, 96));
    assert_eq!((info.MaxTransferLength, info.RdmaTechnology), (1 << 31, NDK_RDMA_TECHNOLOGY::NdkRoCEv2));

    // And of another one, of which no two limits are the same.
    let card = Arc::new(Spy::new(Arc::clone(&bench.sides[0].card)));
    let queues = CapQueues::reset().with(CapQueues::LOG_SQ, 5).with(CapQueues::LOG_RQ, 6).with(CapQueues::LOG_CQ, 11);
    let sges = CapSges::reset().with(CapSges::INITIATOR, 3).with(CapSges::RECEIVE, 5).with(CapSges::READ, 2);
    card.answer(CapQueues::OFFSET, queues.raw());
    card.answer(CapSges::OFFSET, sges.raw());
    card.answer(CapInline::OFFSET, 40);
    card.answer(CapMessage::OFFSET, 1 << 20);
    card.answer(CapReads::OFFSET, CapReads::reset().with(CapReads::INBOUND, 7).with(CapReads::OUTBOUND, 9).raw());
    card.answer(AbiVersion::OFFSET, 0x0001_0009);
    bench.reopen(0, card, (1, 2));
    let info = bench.info(0);
    assert_eq!((info.Version, info.DeviceId), (NDK_VERSION { Major: 1, Minor: 2 }, 0x0001_0009));
    assert_eq!((info.MaxInitiatorQueueDepth, info.MaxReceiveQueueDepth, info.MaxCqDepth, info.MaxSrqDepth), (32, 64, 2048, 0));
    assert_eq!((info.MaxInitiatorRequestSge, info.MaxReceiveRequestSge, info.MaxReadRequestSge), (3, 5, 2));
    assert_eq!((info.MaxInlineDataSize, info.MaxTransferLength), (40, 1 << 20));
    assert_eq!((info.MaxInboundReadLimit, info.MaxOutboundReadLimit), (7, 9));
    for depth in [0, info.MaxCqDepth + 1, u32::MAX] {
        let (slot, mut cq) = (bench.slot(), null_mut());
        let adapter = bench.sides[0].adapter;
        let status =
            ndk!(adapter, NdkCreateCq(depth, Some(on_notified), null_mut(), null_mut(), Some(on_created), slot.context(), &mut cq));
        assert_eq!((status, slot.count()), (INVALID_PARAMETER, 0), "a CQ of {depth} entries");
    }
    bench.close();
}

#[test]
fn numbers_that_are_used_up_are_told_and_come_back_with_a_close() {
    let mut bench = Bench::new();
    let card = Arc::new(Spy::new(Arc::clone(&bench.sides[0].card)));
    // Label 0 of a domain and index 0 of a region are not used.
    for (register, count) in [(CapCqs::OFFSET, 3), (CapPds::OFFSET, 4), (CapMrs::OFFSET, 6)] {
        card.answer(register, count);
    }
    bench.reopen(0, card, (2, 1));
    let adapter = bench.sides[0].adapter;

    let cqs = [(); 3].map(|()| bench.cq(0, 16).0);
    let refused_cq = || {
        let (slot, mut out) = (bench.slot(), null_mut());
        let status = ndk!(adapter, NdkCreateCq(16, Some(on_notified), null_mut(), null_mut(), Some(on_created), slot.context(), &mut out));
        bench.settle();
        (status, slot.count(), out.is_null())
    };
    assert_eq!(refused_cq(), (NO_RESOURCES, 0, true), "a fourth CQ");
    close!(bench, cqs[1] => NdkCloseCq);
    let cqs = [cqs[0], bench.cq(0, 16).0, cqs[2]];
    assert_eq!(refused_cq(), (NO_RESOURCES, 0, true), "a fourth CQ again");

    let pds = [(); 3].map(|()| bench.pd(0));
    let slot = bench.slot();
    assert_eq!(ndk!(adapter, NdkCreatePd(Some(on_created), slot.context(), null_mut())), NO_RESOURCES, "a fourth domain");

    // Each domain has one of the five regions for its privileged token.
    let regions = [(); 2].map(|()| bench.region(pds[0], 64, NDK_MR_FLAG_ALLOW_LOCAL_READ));
    let mut mr = null_mut();
    assert_eq!(
        ndk!(pds[1], NdkCreateMr(0, Some(on_created), slot.context(), &mut mr)),
        SUCCESS,
        "an MR has no number before it is registered"
    );
    let mut bytes = vec![0u8; 2 * PAGE_SIZE];
    let mut mdl = mdl(bytes.as_mut_ptr().cast(), 64);
    let mut register = || {
        let done = bench.slot();
        let status = ndk!(mr, NdkRegisterMr(&mut mdl, 64, NDK_MR_FLAG_ALLOW_LOCAL_READ, Some(on_done), done.context()));
        bench.done(status, done)
    };
    assert_eq!(register(), NO_RESOURCES, "a sixth region");
    let [first, second] = regions;
    close!(bench, first.mr => NdkCloseMr);
    assert_eq!(register(), SUCCESS);
    assert_eq!(slot.count(), 0);
    close!(bench, mr => NdkCloseMr, second.mr => NdkCloseMr);
    let [a, b, c] = pds;
    close!(bench, a => NdkClosePd, b => NdkClosePd, c => NdkClosePd);
    close!(bench, cqs[0] => NdkCloseCq, cqs[1] => NdkCloseCq, cqs[2] => NdkCloseCq);
    bench.close();
}

#[test]
fn what_there_is_not_is_refused_by_its_limit_or_as_not_supported() {
    const NOT_SUPPORTED: NTSTATUS = nt(NtStatus::NOT_SUPPORTED);
    let bench = Bench::new();
    let (pd, (cq, _)) = (bench.pd(0), bench.cq(0, 16));
    let qp = bench.qp(pd, cq, cq, QpSize::default());
    let region = bench.region(pd, 64, NDK_MR_FLAG_ALLOW_LOCAL_READ);
    let slot = bench.slot();
    let out = |place: &mut usize| std::ptr::from_mut(place);
    let mut object = 0x5E57_1E10usize;

    assert_eq!(ndk!(pd, NdkCreateMw(Some(on_created), slot.context(), out(&mut object).cast())), NOT_SUPPORTED);
    let sges = bench.info(0).MaxReceiveRequestSge;
    for (depth, sges, expected) in [
        (0, 0, NOT_SUPPORTED),
        (0, sges, NOT_SUPPORTED),
        (1, 1, INVALID_PARAMETER),
        (u32::MAX, 0, INVALID_PARAMETER),
        (0, sges + 1, INVALID_PARAMETER),
    ] {
        let place = out(&mut object).cast();
        let status = ndk!(pd, NdkCreateSrq(depth, sges, 0, None, null_mut(), null_mut(), Some(on_created), slot.context(), place));
        assert_eq!(status, expected, "an SRQ of {depth} receives of {sges} SGEs");
    }
    let info = bench.info(0);
    let limits = [info.MaxInitiatorQueueDepth, info.MaxInitiatorRequestSge, info.MaxInlineDataSize];
    for beyond in [None, Some(0), Some(1), Some(2)] {
        let numbers: [u32; 3] = std::array::from_fn(|index| limits[index] + u32::from(beyond == Some(index)));
        let place = out(&mut object).cast();
        let [depth, sges, inline_bytes] = numbers;
        let status = ndk!(
            pd,
            NdkCreateQpWithSrq(cq, cq, null_mut(), null_mut(), depth, sges, inline_bytes, Some(on_created), slot.context(), place)
        );
        assert_eq!(status, if beyond.is_some() { INVALID_PARAMETER } else { NOT_SUPPORTED }, "a QP of {numbers:?} with an SRQ");
    }
    let mut id = GUID { Data1: 1, Data2: 2, Data3: 3, Data4: [4; 8] };
    let version = NDK_VERSION { Major: 1, Minor: 0 };
    let place = |object: &mut usize| std::ptr::from_mut(object).cast();
    for status in [
        ndk!(bench.sides[0].adapter, NdkQueryExtension(&mut id, version, place(&mut object))),
        ndk!(pd, NdkQueryExtension(&mut id, version, place(&mut object))),
        ndk!(cq, NdkQueryExtension(&mut id, version, place(&mut object))),
        ndk!(qp, NdkQueryExtension(&mut id, version, place(&mut object))),
        ndk!(region.mr, NdkQueryExtension(&mut id, version, place(&mut object))),
    ] {
        assert_eq!(status, NOT_SUPPORTED, "there are no extensions");
    }
    bench.settle();
    assert_eq!((slot.count(), object), (0, 0x5E57_1E10), "what is refused calls nobody and writes nothing");
    close!(bench, qp => NdkCloseQp, region.mr => NdkCloseMr, cq => NdkCloseCq, pd => NdkClosePd);
    bench.close();
}

#[test]
fn statistics_of_a_card_that_has_none_or_is_gone_are_refused_and_nothing_is_written() {
    for (register, value, expected) in [
        (AbiVersion::OFFSET, 0x0001_0002, NtStatus::BAD_VERSION),
        (WideCounter::RdmaOutOctets.offset() + 4, u32::MAX, NtStatus::DEVICE_REMOVED),
    ] {
        let mut bench = Bench::new();
        let card = Arc::new(Spy::new(Arc::clone(&bench.sides[0].card)));
        card.answer(register, value);
        bench.reopen(0, card, (2, 1));
        let mut counters = NDIS_NDK_PERFORMANCE_COUNTERS { CQError: 7, RDMAOutOctets: 9, ..Default::default() };
        // SAFETY: the adapter is open, the counters live.
        assert_eq!(unsafe { VerbenaQueryStatistics(bench.sides[0].adapter, &mut counters) }, nt(expected));
        assert_eq!(counters, NDIS_NDK_PERFORMANCE_COUNTERS { CQError: 7, RDMAOutOctets: 9, ..Default::default() });
        bench.close();
    }
}

#[test]
fn an_adapter_that_is_closed_too_early_waits_and_says_for_how_many_objects() {
    let bench = Bench::new();
    let (pd, closed, texts) = (bench.pd(0) as usize, bench.slot(), Arc::new(Mutex::new(Vec::new())));
    let warned = Arc::clone(&texts);
    let subscriber = OnWarning(Mutex::new(move |text| {
        warned.lock().unwrap().push(text);
        // As another thread of the consumer would.
        let status = ndk!(pd as *mut NDK_PD, NdkClosePd(Some(on_closed), closed.context()));
        assert_eq!(status, PENDING);
    }));
    tracing::subscriber::with_default(subscriber, || bench.close());
    assert_eq!(*texts.lock().unwrap(), ["message=closing an adapter waits for objects that are not closed;left=1;objects=ObjectCounts { qps: 0, cqs: 0, mrs: 1, pds: 1 };waits=256;"]);
    assert_eq!(closed.calls(), [Call::Closed]);
}

/// Calls a function with the text of each warning.
struct OnWarning<F>(Mutex<F>);

impl<F: FnMut(String) + Send + 'static> Subscriber for OnWarning<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{}={value:?};", field.name());
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        (self.0.lock().unwrap())(text.0);
    }
}
