//! Objects of the C interface: limits, creation and closing in any order.

use std::net::Ipv4Addr;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{span, Event, Level, Metadata, Subscriber};
use verbena_abi::regs::{AbiVersion, WideCounter};
use verbena_host::cm::Exchange;
use verbena_host::ndk::NtStatus;
use verbena_host::AdapterConfig;
use verbena_ndk::abi::*;
use verbena_ndk::open::{CardHandle, VerbenaCloseDevice, VerbenaCloseNdkAdapter, VerbenaQueryStatistics};
use verbena_sim::{World, WorldConfig};
use verbena_tests::ndk::{nt, on_closed, open, Bench, Call, QpSize, PENDING, SUCCESS};
use verbena_tests::spy::Spy;
use verbena_tests::{close, ndk};

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
fn the_limits_are_those_of_the_card() {
    let bench = Bench::new();
    let adapter = bench.sides[0].adapter;
    let mut size = 0;
    assert_eq!(ndk!(adapter, NdkQueryAdapterInfo(null_mut(), &mut size)), nt(NtStatus::BUFFER_TOO_SMALL));
    assert_eq!(size, 104);
    let mut info = std::mem::MaybeUninit::<NDK_ADAPTER_INFO>::zeroed();
    assert_eq!(ndk!(adapter, NdkQueryAdapterInfo(info.as_mut_ptr(), &mut size)), SUCCESS);
    // SAFETY: the provider has filled it.
    let info = unsafe { info.assume_init() };
    assert_eq!(info.Version, NDK_VERSION { Major: 2, Minor: 1 });
    assert_eq!((info.MaxInitiatorQueueDepth, info.MaxReceiveQueueDepth, info.MaxCqDepth), (512, 512, 65_536));
    assert_eq!((info.MaxInitiatorRequestSge, info.MaxReceiveRequestSge, info.MaxInlineDataSize), (6, 6, 96));
    assert_eq!((info.MaxTransferLength, info.RdmaTechnology), (1 << 31, NDK_RDMA_TECHNOLOGY::NdkRoCEv2));
    assert_ne!(PENDING, SUCCESS);
    bench.close();
}

#[test]
fn statistics_of_a_card_that_has_none_or_is_gone_are_refused_and_nothing_is_written() {
    for (register, value, expected) in [
        (AbiVersion::OFFSET, 0x0001_0002, NtStatus::BAD_VERSION),
        (WideCounter::RdmaOutOctets.offset() + 4, u32::MAX, NtStatus::DEVICE_REMOVED),
    ] {
        let world = World::new(&WorldConfig::default()).unwrap();
        let card = Arc::new(Spy::new(world.device(0)));
        card.answer(register, value);
        let config = AdapterConfig::new([2, 0, 0, 0, 0, 1], Some(Ipv4Addr::new(192, 0, 2, 1)), None);
        let device = CardHandle::new(card, config, Exchange::new()).into_raw();
        let adapter = open(device, 2, 1).unwrap();
        let mut counters = NDIS_NDK_PERFORMANCE_COUNTERS { CQError: 7, RDMAOutOctets: 9, ..Default::default() };
        // SAFETY: the adapter is open and nothing is left of it, the counters live.
        unsafe {
            assert_eq!(VerbenaQueryStatistics(adapter, &mut counters), nt(expected));
            VerbenaCloseNdkAdapter(device, adapter);
            VerbenaCloseDevice(device);
        }
        assert_eq!(counters, NDIS_NDK_PERFORMANCE_COUNTERS { CQError: 7, RDMAOutOctets: 9, ..Default::default() });
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
