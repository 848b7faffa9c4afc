//! Posting and polling allocate nothing and free nothing, whatever they answer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

use verbena_cost::rig::{Rig, DEPTH};
use verbena_host::{Completion, Error, Sge, WriteFlags};
use verbena_ndk::abi::{NDK_OP_FLAG_DEFER, NDK_OP_FLAG_INLINE, NDK_OP_FLAG_READ_FENCE, NDK_OP_FLAG_SILENT_SUCCESS, NDK_RESULT_EX, NDK_SGE};

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts the calls of each thread.
struct Counting;

fn count() {
    // A thread that ends frees what is behind its counter.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns what `work` gives, which must not allocate or free.
#[track_caller]
fn quietly<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let before = CALLS.get();
    let outcome = work();
    let calls = CALLS.get() - before;
    assert_eq!(calls, 0, "calls of the allocator by {what}");
    outcome
}

const SGE: Sge = Sge { va: 0x1000, len_bytes: 64, lkey: 0x100 };
const LONG: Sge = Sge { len_bytes: u32::MAX, ..SGE };
const DEFER: WriteFlags = WriteFlags::DEFER;
const NONE: WriteFlags = WriteFlags::NONE;

#[test]
fn the_allocator_is_counted() {
    assert_ne!(
        {
            let before = CALLS.get();
            drop(std::hint::black_box(Box::new(1)));
            CALLS.get() - before
        },
        0
    );
}

#[test]
fn posting_and_polling_allocate_nothing() {
    let mut rig = Rig::new();
    let side = &mut rig.rust;
    // Twice around the ring, so that slots are looked for, and with completions in batches.
    for round in 0..2 {
        for _ in 0..DEPTH / 4 {
            quietly("a write", || side.sq.write(1, &[SGE], 0, 0, NONE)).unwrap();
            quietly("a deferred write", || side.sq.write(1, &[SGE, SGE], 0, 0, DEFER)).unwrap();
            quietly("an inline write", || side.sq.write_inline(1, &[&[1; 3], &[2; 29]], 0, 0, NONE)).unwrap();
            quietly("a deferred inline write", || side.sq.write_inline(1, &[&[1; 8]], 0, 0, DEFER | WriteFlags::SILENT_SUCCESS)).unwrap();
            side.posted += 4;
        }
        let full = quietly("a write into a full queue", || side.sq.write(1, &[SGE], 0, 0, DEFER));
        assert!(matches!(full, Err(Error::QueueFull { .. })), "round {round}");
        let full = quietly("an inline write into a full queue", || side.sq.write_inline(1, &[&[1]], 0, 0, NONE));
        assert!(matches!(full, Err(Error::QueueFull { .. })));
        side.finish();
        let mut polled = 0;
        loop {
            let count = quietly("polling", || side.cq.poll(&mut side.batch));
            polled += count;
            if count == 0 {
                break;
            }
        }
        assert_eq!(polled as u32, DEPTH / 4 * 3, "all but the silent ones");
        quietly("looking for free slots", || side.sq.free_slots());
    }
    let refused = [
        quietly("too many entries", || side.sq.write(1, &[SGE; 3], 0, 0, NONE)),
        quietly("too long a message", || side.sq.write(1, &[LONG; 2], 0, 0, DEFER)),
        quietly("bad flags", || side.sq.write(1, &[SGE], 0, 0, WriteFlags(1 << 31))),
        quietly("too much inline data", || side.sq.write_inline(1, &[&[0; 33]], 0, 0, NONE)),
        quietly("bad flags of an inline write", || side.sq.write_inline(1, &[], 0, 0, WriteFlags(1 << 31))),
    ];
    assert!(refused.iter().all(Result::is_err));

    for _ in 0..DEPTH {
        quietly("a receive", || side.rq.post(2, &[SGE])).unwrap();
    }
    let refused = [
        quietly("a receive too many", || side.rq.post(2, &[SGE])),
        quietly("too many entries of a receive", || side.rq.post(2, &[SGE; 3])),
        quietly("too long a receive", || side.rq.post(2, &[LONG; 2])),
    ];
    assert!(refused.iter().all(Result::is_err));

    side.sq.qp().flush();
    let refused = [
        quietly("a write after the flush", || side.sq.write(1, &[SGE], 0, 0, NONE)),
        quietly("an inline write after the flush", || side.sq.write_inline(1, &[&[1]], 0, 0, DEFER)),
        quietly("a receive after the flush", || side.rq.post(2, &[SGE])),
    ];
    assert!(matches!(refused, [Err(Error::NotConnected { .. }), Err(Error::NotConnected { .. }), Err(Error::ReceivesStopped { .. })]));
    let mut flushed = [Completion::default(); 100];
    let mut polled = 0;
    while polled < DEPTH as usize {
        let count = quietly("polling flushed receives", || side.cq.poll(&mut flushed));
        assert_ne!(count, 0);
        polled += count;
    }
}

#[test]
fn posting_and_polling_through_the_interface_in_c_allocate_nothing() {
    let mut rig = Rig::new();
    let side = &mut rig.c;
    // SAFETY: the rig's objects live as long as the process.
    let (qp_table, cq_table) = unsafe { (&*(*side.qp).Dispatch, &*(*side.cq).Dispatch) };
    let (write, receive, results) = (qp_table.NdkWrite.unwrap(), qp_table.NdkReceive.unwrap(), cq_table.NdkGetCqResults.unwrap());
    let bytes = [7u8; 32];
    let inline = NDK_SGE { Address: bytes.as_ptr() as u64, Length: 32, MemoryRegionToken: 0 };
    let from_region = NDK_SGE { Address: 0x1000, Length: 64, MemoryRegionToken: 0x100 };
    let nowhere = NDK_SGE { Address: 0, Length: 8, MemoryRegionToken: 0 };
    let lists = [from_region; 3];
    // SAFETY: objects and lists are valid.
    let post = |sge: &NDK_SGE, count, flags| unsafe { write(side.qp, null_mut(), sge, count, 0, 0, flags) };
    // All flags in all combinations.
    const FLAGS: [u32; 4] = [NDK_OP_FLAG_SILENT_SUCCESS, NDK_OP_FLAG_READ_FENCE, NDK_OP_FLAG_INLINE, NDK_OP_FLAG_DEFER];
    for index in 0..DEPTH {
        let flags = (0..4).filter(|bit| index >> bit & 1 == 1).map(|bit| FLAGS[bit]).sum();
        let sge = if flags & NDK_OP_FLAG_INLINE != 0 { &inline } else { &from_region };
        assert_eq!(quietly("NdkWrite", || post(sge, 1, flags)), 0, "flags {flags:#x}");
    }
    assert_ne!(quietly("NdkWrite into a full queue", || post(&from_region, 1, 0)), 0);
    assert_ne!(quietly("NdkWrite with INLINE into a full queue", || post(&inline, 1, NDK_OP_FLAG_INLINE)), 0);
    assert_ne!(quietly("NdkWrite with too many entries", || post(&lists[0], 3, 0)), 0);
    assert_ne!(quietly("NdkWrite with too much data inline", || post(&from_region, 1, NDK_OP_FLAG_INLINE)), 0);
    assert_ne!(quietly("NdkWrite with an inline piece at null", || post(&nowhere, 1, NDK_OP_FLAG_INLINE)), 0);
    assert_ne!(quietly("NdkWrite with bad flags", || post(&from_region, 1, 1 << 31)), 0);
    // SAFETY: as above.
    let (no_object, list) = (null_mut(), &raw const from_region);
    let unsupported = unsafe {
        [
            quietly("NdkSend", || qp_table.NdkSend.unwrap()(side.qp, no_object, list, 1, 0)),
            quietly("NdkSendAndInvalidate", || qp_table.NdkSendAndInvalidate.unwrap()(side.qp, no_object, list, 1, 0, 0)),
            quietly("NdkRead", || qp_table.NdkRead.unwrap()(side.qp, no_object, list, 1, 0, 0, 0)),
        ]
    };
    assert!(unsupported.iter().all(|status| *status != 0));
    // SAFETY: as above.
    assert_eq!(quietly("NdkReceive", || unsafe { receive(side.qp, null_mut(), &from_region, 1) }), 0);
    side.posted = DEPTH as u16;
    side.finish();
    let ex = cq_table.NdkGetCqResultsEx.unwrap();
    // SAFETY: there is room for 16, and all zeros are results.
    let (mut results_ex, mut polled) = (unsafe { std::mem::zeroed::<[NDK_RESULT_EX; 16]>() }, 0);
    for round in 0.. {
        // SAFETY: there is room for 16.
        let count = unsafe {
            match round % 2 {
                0 => quietly("NdkGetCqResults", || results(side.cq, side.batch.as_mut_ptr(), 16)),
                _ => quietly("NdkGetCqResultsEx", || ex(side.cq, results_ex.as_mut_ptr(), 16)),
            }
        };
        if count == 0 {
            break;
        }
        polled += count;
    }
    assert_eq!(polled, DEPTH / 2, "all but the silent ones");
}
