//! What is measured: one call each, with what must be ready before it.

use std::hint::black_box;

use verbena_host::{Error, SendQueue, Sge, WriteFlags};
use verbena_ndk::abi::*;

use crate::rig::{ndk, Rig, DEPTH};

/// Calls between two preparations, at most: there are slots for twice as many.
const LAP: u64 = DEPTH as u64 / 2;

const SGE: Sge = Sge { va: 0x7F00_1234_5000, len_bytes: 4096, lkey: 0x0000_0180 };
const BYTES: [u8; 32] = [0x5A; 32];

/// A call that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is, short and without blanks.
    pub name: &'static str,
    /// What it is, in words.
    pub title: &'static str,
    /// Requests or completions of one call, over which its cost is spread.
    pub units: u64,
    /// How many calls one preparation is good for.
    pub lap: u64,
    /// Makes calls possible. Costs nothing.
    pub prepare: fn(&mut Rig),
    /// The call.
    pub call: fn(&mut Rig),
    /// The same call of a function that does nothing: what the caller's side costs, which does not count.
    pub idle: fn(&mut Rig),
}

/// All cases.
pub const CASES: &[Case] = &[
    post("write", "write, one SGE", |rig| write(rig, SendQueue::write, WriteFlags::NONE)),
    post("write_defer", "write, one SGE, DEFER", |rig| write(rig, SendQueue::write, WriteFlags::DEFER)),
    post("inline_8", "inline write, 8 bytes", |rig| inline(rig, 8, WriteFlags::NONE)),
    post("inline_8_defer", "inline write, 8 bytes, DEFER", |rig| inline(rig, 8, WriteFlags::DEFER)),
    post("inline_32", "inline write, 32 bytes", |rig| inline(rig, 32, WriteFlags::NONE)),
    post("inline_32_defer", "inline write, 32 bytes, DEFER", |rig| inline(rig, 32, WriteFlags::DEFER)),
    Case {
        lap: 1,
        prepare: |rig| {
            rig.rust.fill();
            rig.rust.finish();
            rig.rust.reap_all();
        },
        ..post("write_reclaim", "write, one SGE, that looks for free slots", |rig| write(rig, SendQueue::write, WriteFlags::NONE))
    },
    reap("poll_1", "poll, one completion", 1, |rig| {
        assert_eq!(rig.rust.cq.poll(&mut rig.rust.batch[..1]), 1);
    }),
    reap("poll_16", "poll, 16 completions, for each", 16, |rig| {
        assert_eq!(rig.rust.cq.poll(&mut rig.rust.batch), 16);
    }),
    post_c("ndk_write", "NdkWrite, one SGE", |rig| ndk_write(rig, table_entry(rig), ndk_sge(), 0)),
    post_c("ndk_write_defer", "NdkWrite, one SGE, DEFER", |rig| ndk_write(rig, table_entry(rig), ndk_sge(), NDK_OP_FLAG_DEFER)),
    post_c("ndk_inline_8", "NdkWrite, INLINE, 8 bytes", |rig| ndk_write(rig, table_entry(rig), ndk_bytes(8), NDK_OP_FLAG_INLINE)),
    post_c("ndk_inline_32", "NdkWrite, INLINE, 32 bytes", |rig| ndk_write(rig, table_entry(rig), ndk_bytes(32), NDK_OP_FLAG_INLINE)),
    reap_c("ndk_results_1", "NdkGetCqResults, one completion", 1, |rig| ndk_results(rig, 1)),
    reap_c("ndk_results_16", "NdkGetCqResults, 16 completions, for each", 16, |rig| ndk_results(rig, 16)),
];

/// Returns the case of a name.
pub fn named(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

const fn post(name: &'static str, title: &'static str, call: fn(&mut Rig)) -> Case {
    let idle = |rig: &mut Rig| write(rig, idle_write, WriteFlags::NONE);
    Case { name, title, units: 1, lap: LAP, prepare: |rig| rig.rust.drain(), call, idle }
}

const fn post_c(name: &'static str, title: &'static str, call: fn(&mut Rig)) -> Case {
    let idle = |rig: &mut Rig| ndk_write(rig, Some(idle_ndk_write), ndk_sge(), 0);
    Case { name, title, units: 1, lap: LAP, prepare: |rig| rig.c.drain(), call, idle }
}

const fn reap(name: &'static str, title: &'static str, units: u64, call: fn(&mut Rig)) -> Case {
    let prepare = |rig: &mut Rig| {
        rig.rust.fill();
        rig.rust.finish();
    };
    Case { name, title, units, lap: DEPTH as u64 / units, prepare, call, idle: |_| () }
}

const fn reap_c(name: &'static str, title: &'static str, units: u64, call: fn(&mut Rig)) -> Case {
    let prepare = |rig: &mut Rig| {
        rig.c.drain();
        rig.c.fill();
        rig.c.finish();
    };
    Case { name, title, units, lap: DEPTH as u64 / units - 1, prepare, call, idle: |_| () }
}

type Write = fn(&mut SendQueue, u64, &[Sge], u64, u32, WriteFlags) -> Result<(), Error>;

#[inline(never)]
fn idle_write(_: &mut SendQueue, _: u64, _: &[Sge], _: u64, _: u32, _: WriteFlags) -> Result<(), Error> {
    black_box(Ok(()))
}

#[inline(always)]
fn write(rig: &mut Rig, write: Write, flags: WriteFlags) {
    let side = &mut rig.rust;
    black_box(write)(&mut side.sq, 7, &[SGE], 0xABCD_0000, 0x55, flags).expect("a free slot");
    side.posted += 1;
}

#[inline(always)]
fn inline(rig: &mut Rig, len: usize, flags: WriteFlags) {
    let side = &mut rig.rust;
    side.sq.write_inline(7, &[black_box(&BYTES[..len])], 0xABCD_0000, 0x55, flags).expect("a free slot");
    side.posted += 1;
}

/// Returns `NdkWrite`, as a consumer in C calls it.
#[inline(always)]
fn table_entry(rig: &Rig) -> NDK_FN_WRITE {
    // SAFETY: the rig's objects live as long as the process.
    unsafe { (*(*rig.c.qp).Dispatch).NdkWrite }
}

unsafe extern "C" fn idle_ndk_write(_: *mut NDK_QP, _: PVOID, _: *const NDK_SGE, _: ULONG, _: UINT64, _: UINT32, _: ULONG) -> NTSTATUS {
    black_box(0)
}

fn ndk_sge() -> NDK_SGE {
    NDK_SGE { Address: SGE.va, Length: SGE.len_bytes, MemoryRegionToken: SGE.lkey }
}

fn ndk_bytes(len: u32) -> NDK_SGE {
    NDK_SGE { Address: BYTES.as_ptr() as u64, Length: len, MemoryRegionToken: 0 }
}

#[inline(always)]
fn ndk_write(rig: &mut Rig, write: NDK_FN_WRITE, sge: NDK_SGE, flags: ULONG) {
    let write = black_box(write).expect("an entry of the table");
    // SAFETY: the queue pair lives, and the list is valid during the call.
    let status = unsafe { write(rig.c.qp, 7 as PVOID, &sge, 1, 0xABCD_0000, 0x55, flags) };
    assert_eq!(status, 0);
    rig.c.posted += 1;
}

#[inline(always)]
fn ndk_results(rig: &mut Rig, count: ULONG) {
    assert_eq!(ndk!(rig.c.cq, NdkGetCqResults(rig.c.batch.as_mut_ptr(), count)), count);
}
