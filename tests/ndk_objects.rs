//! Objects of the C interface: limits, creation and closing in any order.

use std::ptr::null_mut;

use verbena_host::ndk::NtStatus;
use verbena_ndk::abi::*;
use verbena_tests::ndk::{nt, open, Bench, QpSize, PENDING, SUCCESS};
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
