//! The checklist of `NdkWrite`, item by item: section 6.2 of the fact sheet, through the C interface on verilated cards.
//!
//! A comment that begins with `choice:` says what this provider does where NDKPI leaves it open. Helpers are at the bottom.

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use verbena_abi::regs::Counter;
use verbena_host::ndk::NtStatus;
use verbena_host::Device;
use verbena_ndk::abi::*;
use verbena_tests::ndk::*;
use verbena_tests::{close, ndk};

const FULL: NTSTATUS = nt(NtStatus::NO_MORE_ENTRIES);
const TOO_MANY_SGES: NTSTATUS = nt(NtStatus::DATA_OVERRUN);
const TOO_LONG: NTSTATUS = nt(NtStatus::BUFFER_OVERFLOW);
const ACCESS_VIOLATION: NTSTATUS = nt(NtStatus::ACCESS_VIOLATION);
const NOT_SUPPORTED: NTSTATUS = nt(NtStatus::NOT_SUPPORTED);

const SILENT: u32 = NDK_OP_FLAG_SILENT_SUCCESS;
const FENCE: u32 = NDK_OP_FLAG_READ_FENCE;
const DEFER: u32 = NDK_OP_FLAG_DEFER;
const INLINE: u32 = NDK_OP_FLAG_INLINE;

/// `QPContext` of the fixture's QPs.
const QP: u64 = 0xC0FFEE;
const KIB: usize = 1024;

// Call shape.

#[test]
fn write_01_takes_seven_parameters_in_the_order_of_the_interface() {
    type Write = unsafe extern "C" fn(*mut NDK_QP, PVOID, *const NDK_SGE, u32, u64, u32, u32) -> i32;
    let pair = Pair::new();
    // SAFETY: the QP is live; its table has eleven entries, of which this one is number 9.
    let (write, entry) = unsafe {
        let table = (*pair.qp(0)).Dispatch;
        let write: Write = (*table).NdkWrite.unwrap();
        (write, table.cast::<Write>().add(9).read())
    };
    assert_eq!(write as usize, entry as usize, "entry 9 of the table");
    // Six values that differ, each of which shows.
    let sges = [pair.source.sge(10, 3), pair.source.sge(50, 4)];
    // SAFETY: the QP and the list are live.
    let status = unsafe { write(pair.qp(0), 0x77 as PVOID, sges.as_ptr(), 2, pair.sink.va(33), pair.sink.token, FENCE) };
    assert_eq!(status, SUCCESS);
    pair.expect_entries(0, &[(0x77, SUCCESS)]);
    pair.expect_bytes(33, &[pair.bytes(10, 3), pair.bytes(50, 4)].concat());
    pair.close();
}

#[test]
fn write_02_returns_while_the_clocks_of_the_cards_stand_still() {
    let pair = Pair::new();
    let clock = pair.bench.world.clock();
    for request in 0..16 {
        // Never PENDING.
        assert_eq!(pair.write(request, 0, 64, 0, 0), SUCCESS);
    }
    assert_eq!(pair.write(16, 0, 64, 0, 0), FULL);
    assert_eq!(pair.bench.world.clock(), clock);
    pair.bench.reap(pair.cqs[0].0, 16);
    pair.close();
}

#[test]
fn write_03_may_run_beside_receives_reaping_and_a_flush_of_another_qp() {
    let pair = Pair::sized(QpSize { receives: 512, initiators: 512, ..QpSize::default() });
    let other = pair.another_qp();
    let (qp, cq, is_over) = (pair.qp(0) as usize, pair.cqs[0].0 as usize, Arc::new(AtomicBool::new(false)));
    let seen = std::thread::scope(|scope| {
        let over = Arc::clone(&is_over);
        let receiver = scope.spawn(move || {
            let mut taken = 0u64;
            while !over.load(Ordering::Acquire) {
                taken += u64::from(ndk!(qp as *mut NDK_QP, NdkReceive(taken as PVOID, null(), 0)) == SUCCESS);
            }
            taken
        });
        let over = Arc::clone(&is_over);
        let reaper = scope.spawn(move || {
            let mut statuses = Vec::new();
            while statuses.len() < 200 && !over.load(Ordering::Acquire) {
                let mut result = std::mem::MaybeUninit::<NDK_RESULT>::uninit();
                if ndk!(cq as *mut NDK_CQ, NdkGetCqResults(result.as_mut_ptr(), 1)) == 1 {
                    // SAFETY: the provider has filled one.
                    let result = unsafe { result.assume_init() };
                    statuses.push((result.Status, result.RequestContext as u64));
                }
            }
            statuses
        });
        ndk!(other, NdkFlush());
        for request in 0..200 {
            assert_eq!(pair.write(request, 0, 8, 0, 0), SUCCESS);
            pair.bench.step();
        }
        (0..200).for_each(|_| pair.bench.step());
        is_over.store(true, Ordering::Release);
        assert_eq!(receiver.join().unwrap(), 512, "every receive that there is room for");
        reaper.join().unwrap()
    });
    assert_eq!(seen, (0..200).map(|request| (SUCCESS, request)).collect::<Vec<_>>());
    close!(pair.bench, other => NdkCloseQp);
    pair.close();
}

#[test]
fn write_04_needs_no_lock_against_posts_of_other_qps() {
    let pair = Pair::new();
    let other = pair.another_qp();
    // An unconnected QP is asked all the time by another thread; both get their own answers.
    let (other_address, is_over) = (other as usize, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let status = ndk!(other_address as *mut NDK_QP, NdkWrite(null_mut(), null(), 0, 0, 0, 0));
                assert_eq!(status, CONNECTION_INVALID);
            }
        });
        for request in 0..100 {
            assert_eq!(pair.write(request, 0, 8, 0, 0), SUCCESS);
            pair.expect_entries(0, &[(request, SUCCESS)]);
        }
        is_over.store(true, Ordering::Release);
    });
    close!(pair.bench, other => NdkCloseQp);
    pair.close();
}

#[test]
fn write_05_does_not_look_at_the_list_or_inline_data_after_it_returned() {
    let pair = Pair::new();
    let mut sges = [pair.source.sge(0, 20), pair.source.sge(100, 20)];
    let mut text = *b"inline text";
    assert_eq!(pair.post(1, &sges, 0, DEFER), SUCCESS);
    sges = [NDK_SGE { Address: 0xBAD, Length: 9, MemoryRegionToken: 0xBAD }; 2];
    let piece = [NDK_SGE { Address: text.as_ptr() as u64, Length: 11, MemoryRegionToken: 0xBAD }];
    assert_eq!(pair.post(2, &piece, 500, INLINE | DEFER), SUCCESS);
    text.fill(b'x');
    assert_eq!(pair.post(3, &[], 0, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
    assert_eq!((sges[0].Length, text[0]), (9, b'x'), "they were there all the time");
    pair.expect_bytes(0, &[pair.bytes(0, 20), pair.bytes(100, 20)].concat());
    pair.expect_bytes(500, b"inline text");
    pair.close();
}

// Inline results.

#[test]
fn write_06_success_makes_one_entry_unless_it_is_silent_and_succeeds() {
    let pair = Pair::new();
    assert_eq!(pair.write(1, 0, 9, 0, 0), SUCCESS);
    assert_eq!(pair.write(2, 0, 9, 20, SILENT), SUCCESS);
    assert_eq!(pair.write(3, 0, 9, 40, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS), (3, SUCCESS)]);
    pair.expect_quiet();
    pair.expect_bytes(20, &pair.bytes(0, 9));
    pair.close();
}

#[test]
fn write_07_failure_makes_no_entry_takes_no_slot_and_moves_nothing() {
    let pair = Pair::sized(QpSize { initiators: 4, ..QpSize::default() });
    for _ in 0..10 {
        assert_eq!(pair.write(9, 0, 9, 0, 0x4), INVALID_PARAMETER);
        assert_eq!(pair.post(9, &[pair.source.sge(0, 1); 3], 0, 0), TOO_MANY_SGES);
    }
    for request in 0..4 {
        assert_eq!(pair.write(request, 0, 1, 100 + request as usize, DEFER), SUCCESS, "no slot was taken");
    }
    assert_eq!(pair.write(9, 0, 9, 0, 0), FULL);
    pair.expect_entries(0, &[(0, SUCCESS), (1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
    pair.expect_quiet();
    pair.expect_bytes(100, &pair.bytes(0, 1).repeat(4));
    pair.close();
}

#[test]
fn write_08_on_an_unconnected_qp_is_refused() {
    let pair = Pair::new();
    let other = pair.another_qp();
    for flags in [0, SILENT, DEFER, INLINE] {
        assert_eq!(ndk!(other, NdkWrite(null_mut(), null(), 0, 0, 0, flags)), CONNECTION_INVALID);
    }
    pair.expect_quiet();
    close!(pair.bench, other => NdkCloseQp);
    pair.close();
}

#[test]
fn write_09_more_than_the_depth_is_refused() {
    let pair = Pair::sized(QpSize { initiators: 3, ..QpSize::default() });
    for round in 0..5 {
        for request in 0..3 {
            assert_eq!(pair.write(3 * round + request, 0, 5, 0, 0), SUCCESS);
        }
        // choice: STATUS_NO_MORE_ENTRIES.
        assert_eq!(pair.write(99, 0, 5, 0, 0), FULL);
        let entries = [3 * round, 3 * round + 1, 3 * round + 2].map(|request| (request, SUCCESS));
        pair.expect_entries(0, &entries);
    }
    pair.close();
}

#[test]
fn write_10_more_sges_than_the_qp_was_made_for_are_refused() {
    for limit in 1..=6 {
        let pair = Pair::sized(QpSize { initiator_sges: limit, ..QpSize::default() });
        let sges: Vec<_> = (0..=limit as usize).map(|index| pair.source.sge(10 * index, 3)).collect();
        // The limit of reads, which is 0 on this card, plays no part. choice: STATUS_DATA_OVERRUN.
        assert_eq!(pair.post(1, &sges, 0, 0), TOO_MANY_SGES);
        assert_eq!(pair.post(2, &sges[1..], 0, 0), SUCCESS);
        pair.expect_entries(0, &[(2, SUCCESS)]);
        let bytes: Vec<_> = (1..=limit as usize).flat_map(|index| pair.bytes(10 * index, 3)).collect();
        pair.expect_bytes(0, &bytes);
        pair.close();
    }
}

#[test]
fn write_11_more_than_the_longest_message_is_refused() {
    let pair = Pair::new();
    let sge = |len| NDK_SGE { Length: len, ..pair.source.sge(0, 0) };
    // choice: STATUS_BUFFER_OVERFLOW, inline.
    assert_eq!(pair.post(1, &[sge((1 << 31) + 1)], 0, 0), TOO_LONG);
    assert_eq!(pair.post(1, &[sge(1 << 31), sge(1)], 0, 0), TOO_LONG);
    // The limit itself is a matter of the region.
    assert_eq!(pair.post(2, &[sge(1 << 31)], 0, 0), SUCCESS);
    pair.expect_entries(0, &[(2, ACCESS_VIOLATION)]);
    pair.close();
}

#[test]
fn write_12_lengths_are_added_without_a_wrap() {
    let pair = Pair::new();
    let sge = |len| NDK_SGE { Length: len, ..pair.source.sge(0, 0) };
    assert_eq!(pair.post(1, &[sge(u32::MAX), sge(11)], 0, 0), TOO_LONG, "10 modulo 2^32");
    assert_eq!(pair.post(1, &[sge(1 << 31), sge(1 << 31)], 0, 0), TOO_LONG, "0 modulo 2^32");
    assert_eq!(pair.post(1, &[sge(u32::MAX), sge(11)], 0, INLINE), TOO_LONG);
    pair.expect_quiet();
    pair.close();
}

#[test]
fn write_13_more_inline_data_than_the_qp_was_made_for_is_refused() {
    for limit in [0, 1, 32, 33, 96] {
        let pair = Pair::sized(QpSize { inline_bytes: limit, ..QpSize::default() });
        // choice: STATUS_BUFFER_OVERFLOW.
        assert_eq!(pair.write(1, 0, limit + 1, 0, INLINE), TOO_LONG);
        assert_eq!(pair.write(2, 0, limit, 0, INLINE), SUCCESS);
        pair.expect_entries(0, &[(2, SUCCESS)]);
        pair.expect_bytes(0, &pair.bytes(0, limit as usize));
        pair.close();
    }
}

#[test]
fn write_14_flags_that_a_write_does_not_have_are_refused() {
    let pair = Pair::new();
    let known = SILENT | FENCE | INLINE | DEFER;
    for bit in (0..32).map(|bit| 1 << bit).filter(|bit| known & bit == 0) {
        // choice: STATUS_INVALID_PARAMETER, SEND_AND_SOLICIT_EVENT too.
        assert_eq!(pair.write(1, 0, 4, 0, bit), INVALID_PARAMETER, "{bit:#x}");
        assert_eq!(pair.write(1, 0, 4, 0, bit | known), INVALID_PARAMETER, "{bit:#x}");
    }
    pair.expect_quiet();
    pair.close();
}

#[test]
fn write_15_every_inline_failure_hands_deferred_requests_over() {
    let pair = Pair::sized(QpSize { initiators: 2, ..QpSize::default() });
    type Post<'a> = (&'a str, Box<dyn Fn() -> NTSTATUS + 'a>, NTSTATUS);
    let qp = pair.qp(0);
    let failures: Vec<Post> = vec![
        ("flags", Box::new(|| pair.write(9, 0, 4, 0, 0x8000)), INVALID_PARAMETER),
        ("SGEs", Box::new(|| pair.post(9, &[pair.source.sge(0, 1); 3], 0, 0)), TOO_MANY_SGES),
        ("length", Box::new(|| pair.post(9, &[NDK_SGE { Length: u32::MAX, ..pair.source.sge(0, 0) }], 0, 0)), TOO_LONG),
        ("inline", Box::new(|| pair.write(9, 0, 33, 0, INLINE)), TOO_LONG),
        ("deferred itself", Box::new(|| pair.write(9, 0, 4, 0, DEFER | 0x8000)), INVALID_PARAMETER),
        ("null list", Box::new(|| ndk!(qp, NdkWrite(null_mut(), null(), 1, 0, 0, 0))), INVALID_PARAMETER),
        ("send", Box::new(|| ndk!(qp, NdkSend(null_mut(), null(), 0, 0))), NOT_SUPPORTED),
        ("read", Box::new(|| ndk!(qp, NdkRead(null_mut(), null(), 0, 0, 0, 0))), NOT_SUPPORTED),
        ("send and invalidate", Box::new(|| ndk!(qp, NdkSendAndInvalidate(null_mut(), null(), 0, 0, 0))), NOT_SUPPORTED),
        ("invalidate", Box::new(|| ndk!(qp, NdkInvalidate(null_mut(), null_mut(), 0))), NOT_SUPPORTED),
        ("bind", Box::new(|| ndk!(qp, NdkBind(null_mut(), null_mut(), null_mut(), null_mut(), 0, 0))), NOT_SUPPORTED),
        ("fast register", Box::new(|| ndk!(qp, NdkFastRegister(null_mut(), null_mut(), 0, null(), 0, 0, null_mut(), 0))), NOT_SUPPORTED),
    ];
    for (what, fail, status) in failures {
        assert_eq!(pair.write(1, 0, 4, 0, DEFER), SUCCESS);
        pair.expect_quiet();
        assert_eq!(fail(), status, "{what}");
        pair.expect_entries(0, &[(1, SUCCESS)]);
    }
    assert_eq!(pair.write(1, 0, 4, 0, DEFER), SUCCESS);
    assert_eq!(pair.write(2, 0, 4, 0, DEFER), SUCCESS);
    pair.expect_quiet();
    assert_eq!(pair.write(3, 0, 4, 0, DEFER), FULL, "a chain that fills the queue");
    pair.expect_entries(0, &[(1, SUCCESS), (2, SUCCESS)]);
    // A failing receive is no initiator call.
    assert_eq!(pair.write(1, 0, 4, 0, DEFER), SUCCESS);
    assert_eq!(ndk!(qp, NdkReceive(null_mut(), [pair.source.sge(0, 1); 3].as_ptr(), 3)), TOO_MANY_SGES);
    pair.expect_quiet();
    assert_eq!(pair.write(2, 0, 4, 0, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS), (2, SUCCESS)]);
    pair.close();
}

#[test]
fn write_16_an_inline_failure_leaves_the_qp_working() {
    let pair = Pair::new();
    for request in 0..20 {
        assert_eq!(pair.write(99, 0, 4, 0, 0x8), INVALID_PARAMETER);
        assert_eq!(pair.write(request, 0, 4, 4 * request as usize, 0), SUCCESS);
        pair.expect_entries(0, &[(request, SUCCESS)]);
    }
    pair.expect_bytes(0, &pair.bytes(0, 4).repeat(20));
    pair.close();
}

// Flags.

#[test]
fn write_17_the_documented_flags_are_accepted() {
    assert_eq!((SILENT, FENCE, DEFER), (0x1, 0x2, 0x200));
    let pair = Pair::new();
    for (request, flags) in [0x1, 0x2, 0x200].into_iter().enumerate() {
        assert_eq!(pair.write(request as u64, 0, 4, 0, flags), SUCCESS);
    }
    assert_eq!(pair.write(3, 0, 4, 0, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
    pair.close();
}

#[test]
fn write_18_inline_is_accepted() {
    assert_eq!(INLINE, 0x40);
    let pair = Pair::new();
    assert_eq!(pair.write(1, 7, 32, 3, INLINE), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS)]);
    pair.expect_bytes(3, &pair.bytes(7, 32));
    pair.close();
}

#[test]
fn write_19_inline_data_is_copied_during_the_call_from_any_number_of_pieces() {
    let pair = Pair::sized(QpSize { inline_bytes: 96, initiator_sges: 1, ..QpSize::default() });
    let mut text: Vec<u8> = (0..96).collect();
    // 48 pieces on a QP of one SGE, with tokens that there are none of.
    let pieces: Vec<_> =
        text.chunks(2).map(|piece| NDK_SGE { Address: piece.as_ptr() as u64, Length: 2, MemoryRegionToken: 0xBAD }).collect();
    assert_eq!(pair.post(1, &pieces, 5, INLINE | DEFER), SUCCESS);
    let expected = text.clone();
    text.fill(0xFF);
    assert_eq!(pair.post(2, &[NDK_SGE { Address: 0, Length: 0, MemoryRegionToken: 0 }; 3], 0, INLINE), SUCCESS, "no bytes");
    pair.expect_entries(0, &[(1, SUCCESS), (2, SUCCESS)]);
    pair.expect_bytes(5, &expected);
    pair.close();
}

#[test]
fn write_20_a_read_fence_holds_nothing_up_where_there_are_no_reads() {
    let pair = Pair::new();
    // The card has no reads: MaxOutboundReadLimit is 0.
    assert_eq!(ndk!(pair.qp(0), NdkRead(null_mut(), null(), 0, 0, 0, 0)), NOT_SUPPORTED);
    assert_eq!(pair.write(1, 0, 40, 0, FENCE), SUCCESS);
    assert_eq!(pair.write(2, 0, 40, 100, FENCE), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS), (2, SUCCESS)]);
    pair.expect_bytes(100, &pair.bytes(0, 40));
    pair.close();
}

#[test]
fn write_21_without_a_fence_a_write_starts_at_once() {
    let pair = Pair::new();
    assert_eq!(pair.write(1, 0, 40, 0, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS)]);
    pair.close();
}

#[test]
fn write_22_defer_holds_the_doorbell_until_a_request_without_it() {
    let pair = Pair::new();
    for request in 0..5 {
        assert_eq!(pair.write(request, 0, 4, 4 * request as usize, DEFER), SUCCESS);
    }
    // choice: the doorbell is held back.
    pair.expect_quiet();
    pair.expect_bytes(0, &[0xEE; 20]);
    assert_eq!(pair.write(5, 0, 4, 20, 0), SUCCESS);
    pair.expect_entries(0, &[0, 1, 2, 3, 4, 5].map(|request| (request, SUCCESS)));
    pair.expect_bytes(0, &pair.bytes(0, 4).repeat(6));
    pair.close();
}

#[test]
fn write_23_without_defer_the_card_is_told_of_everything_held_before() {
    let pair = Pair::new();
    for request in 0..12u64 {
        let flags = if request % 4 == 3 { 0 } else { DEFER };
        assert_eq!(pair.write(request, 0, 4, 0, flags), SUCCESS);
        if flags == 0 {
            let entries: Vec<_> = (request - 3..=request).map(|request| (request, SUCCESS)).collect();
            pair.expect_entries(0, &entries);
        }
    }
    pair.close();
}

#[test]
fn write_24_silent_success_hides_success_alone() {
    // Success: no entry and no notification.
    let pair = Pair::new();
    ndk!(pair.cqs[0].0, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    assert_eq!(pair.write(1, 0, 4, 0, SILENT), SUCCESS);
    pair.expect_quiet();
    assert_eq!(pair.cqs[0].1.count(), 0);
    pair.expect_bytes(0, &pair.bytes(0, 4));
    // Failure: an entry, and so is each cancellation behind it.
    let bad = NDK_SGE { MemoryRegionToken: 0xBAD0, ..pair.source.sge(0, 4) };
    assert_eq!(pair.post(2, &[bad], 0, SILENT | DEFER), SUCCESS);
    assert_eq!(pair.write(3, 0, 4, 0, SILENT), SUCCESS);
    pair.expect_entries(0, &[(2, ACCESS_VIOLATION), (3, CANCELLED)]);
    assert_eq!(pair.cqs[0].1.calls(), [Call::Notified(SUCCESS)]);
    pair.close();
}

#[test]
fn write_25_flags_combine_freely() {
    let pair = Pair::new();
    for len in [0, 1, 32] {
        for index in 0..16u32 {
            let flags =
                [SILENT, FENCE, DEFER, INLINE].into_iter().enumerate().fold(0, |flags, (bit, flag)| flags | flag * (index >> bit & 1));
            let to = 64 * index as usize;
            pair.sink.fill(to, &[0xEE; 64]);
            assert_eq!(pair.write(1, index as usize, len, to + 1, flags), SUCCESS, "{flags:#x}");
            assert_eq!(pair.write(2, 0, 0, 0, 0), SUCCESS);
            if flags & SILENT == 0 {
                pair.expect_entries(0, &[(1, SUCCESS), (2, SUCCESS)]);
            } else {
                pair.expect_entries(0, &[(2, SUCCESS)]);
            }
            pair.expect_bytes(to + 1, &pair.bytes(index as usize, len as usize));
        }
    }
    pair.close();
}

// Local side.

#[test]
fn write_26_privileged_tokens_name_logical_addresses_and_others_virtual_ones() {
    let pair = Pair::sized(QpSize { initiator_sges: 6, ..QpSize::default() });
    let mut privileged = 0;
    ndk!(pair.pds[0], NdkGetPrivilegedMemoryRegionToken(&mut privileged));
    assert_ne!(privileged, 0);
    // A buffer of its own that is in no region, from the middle of one page to the middle of another.
    let buffer: &'static [u8] = Vec::leak((0..12_000u32).map(|index| (index % 251) as u8).collect());
    let mut list = mdl(buffer.as_ptr(), buffer.len());
    let mut lam = vec![0u64; 16];
    let (mut size, mut fbo) = (8 * lam.len() as u32, 0);
    let place: *mut NDK_LOGICAL_ADDRESS_MAPPING = lam.as_mut_ptr().cast();
    let status = ndk!(pair.bench.sides[0].adapter, NdkBuildLAM(&mut list, buffer.len(), None, null_mut(), place, &mut size, &mut fbo));
    assert_eq!(status, SUCCESS);
    assert_eq!(fbo as usize, buffer.as_ptr() as usize % PAGE_SIZE);
    let pages = ((fbo as usize + buffer.len()).div_ceil(PAGE_SIZE)) as u32;
    assert_eq!((lam[1] as u32, size), (pages, 16 + 8 * pages));
    // One SGE a page, as if they were not adjacent; the last one is of a region, by virtual address.
    let mut left = buffer.len();
    let mut sges = Vec::new();
    for page in 0..pages as usize {
        let offset = if page == 0 { fbo as usize } else { 0 };
        let len = (PAGE_SIZE - offset).min(left);
        assert_eq!(lam[2 + page] % PAGE_SIZE as u64, 0, "pages are aligned");
        sges.push(NDK_SGE { Address: lam[2 + page] + offset as u64, Length: len as u32, MemoryRegionToken: privileged });
        left -= len;
    }
    sges.push(pair.source.sge(77, 10));
    assert_eq!(pair.post(1, &sges, 1, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS)]);
    pair.expect_bytes(1, &[buffer, &pair.bytes(77, 10)].concat());
    ndk!(pair.bench.sides[0].adapter, NdkReleaseLAM(place));
    // By virtual address the privileged token names nothing that is mapped, but for luck; a region's token names no logical address.
    assert_eq!(pair.post(2, &[NDK_SGE { Address: lam[2], ..pair.source.sge(0, 4) }], 0, 0), SUCCESS);
    pair.expect_entries(0, &[(2, ACCESS_VIOLATION)]);
    pair.close();
}

#[test]
fn write_27_local_read_access_is_enough_for_a_source() {
    // The fixture's source has NDK_MR_FLAG_ALLOW_LOCAL_READ alone.
    let pair = Pair::new();
    assert_eq!(pair.write(1, 0, 500, 0, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS)]);
    pair.close();
}

#[test]
fn write_28_data_is_gathered_in_the_order_of_the_entries() {
    let pair = Pair::sized(QpSize { initiator_sges: 6, ..QpSize::default() });
    let pieces = [(900, 7), (3, 100), (900, 7), (0, 1), (2000, 333), (5, 64)];
    let sges = pieces.map(|(at, len)| pair.source.sge(at, len));
    assert_eq!(pair.post(1, &sges, 11, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS)]);
    let bytes: Vec<_> = pieces.iter().flat_map(|(at, len)| pair.bytes(*at, *len as usize)).collect();
    pair.expect_bytes(11, &bytes);
    pair.close();
}

#[test]
fn write_29_no_entries_and_empty_entries_make_a_write_of_no_bytes() {
    let pair = Pair::new();
    assert_eq!(ndk!(pair.qp(0), NdkWrite(1 as PVOID, null(), 0, pair.sink.va(0), pair.sink.token, 0)), SUCCESS);
    assert_eq!(pair.post(2, &[pair.source.sge(0, 0); 2], 0, 0), SUCCESS);
    // An empty entry takes part in nothing, not even in the check of its token.
    assert_eq!(pair.post(3, &[NDK_SGE { MemoryRegionToken: 0xBAD, ..NDK_SGE::default() }, pair.source.sge(5, 6)], 9, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
    pair.expect_bytes(9, &pair.bytes(5, 6));
    pair.close();
}

#[test]
fn write_30_a_local_token_or_range_that_is_not_good_ends_in_an_access_violation() {
    let len = pair_bytes() as u32;
    let cases: [(&str, fn(&Pair) -> NDK_SGE); 5] = [
        ("no such token", |pair| NDK_SGE { MemoryRegionToken: pair.source.token ^ 0xFF00, ..pair.source.sge(0, 4) }),
        ("an old token", |pair| NDK_SGE { MemoryRegionToken: pair.source.token ^ 1, ..pair.source.sge(0, 4) }),
        ("before the region", |pair| NDK_SGE { Address: pair.source.va(0) - 1, ..pair.source.sge(0, 4) }),
        ("behind the region", |pair| pair.source.sge(pair_bytes() - 3, 4)),
        ("the other end of memory", |pair| NDK_SGE { Address: u64::MAX - 1, ..pair.source.sge(0, 4) }),
    ];
    for (what, sge) in cases {
        let pair = Pair::new();
        // choice: found by the card, so it is a completion.
        assert_eq!(pair.post(1, &[sge(&pair)], 0, 0), SUCCESS, "{what}");
        pair.expect_entries(0, &[(1, ACCESS_VIOLATION)]);
        pair.close();
    }
    // The whole region is good.
    let pair = Pair::new();
    assert_eq!(pair.write(1, 0, len, 0, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS)]);
    // One that was deregistered is not.
    let slot = pair.bench.slot();
    let status = ndk!(pair.source.mr, NdkDeregisterMr(Some(on_done), slot.context()));
    assert_eq!(pair.bench.done(status, slot), SUCCESS);
    assert_eq!(pair.write(2, 0, 4, 0, 0), SUCCESS);
    pair.expect_entries(0, &[(2, ACCESS_VIOLATION)]);
    pair.close();
}

#[test]
fn write_31_local_buffers_are_not_modified() {
    let pair = Pair::new();
    let before = pair.bytes(0, pair_bytes());
    for (request, len) in [(0, 1), (1, 4096), (2, 5000)] {
        assert_eq!(pair.write(request, 3, len, 1, 0), SUCCESS);
        pair.expect_entries(0, &[(request, SUCCESS)]);
    }
    assert!(pair.source.read(0, pair_bytes()) == before);
    pair.close();
}

#[test]
fn write_32_sources_have_any_address_and_any_length() {
    let pair = Pair::new();
    for (request, len) in [1, 2, 3, 63, 64, 65, 4095, 4096, 4097, 8191, 8193].into_iter().enumerate() {
        for shift in [0, 1, 7, 63] {
            let to = 20_000 + 64 - shift;
            pair.sink.fill(to - 1, &vec![0xEE; len + 2]);
            assert_eq!(pair.write(request as u64, shift, len as u32, to, 0), SUCCESS);
            pair.expect_entries(0, &[(request as u64, SUCCESS)]);
            pair.expect_bytes(to, &pair.bytes(shift, len));
        }
    }
    pair.close();
}

// Remote side.

#[test]
fn write_33_the_remote_address_is_taken_to_the_byte() {
    let pair = Pair::new();
    for offset in [0, 1, 2, 3, 5, 63, 4095] {
        pair.sink.fill(0, &[0xEE; 4200]);
        assert_eq!(pair.write(1, 9, 70, offset, 0), SUCCESS);
        pair.expect_entries(0, &[(1, SUCCESS)]);
        pair.expect_bytes(offset, &pair.bytes(9, 70));
    }
    pair.close();
}

#[test]
fn write_34_the_remote_token_goes_to_the_peer_as_it_is() {
    let pair = Pair::new();
    // Two regions of the peer, and each token opens its own.
    let second = pair.bench.region(pair.pds[1], 4096, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    assert_ne!(second.token, pair.sink.token);
    let status = pair.bench.write(pair.qp(0), 1, &[pair.source.sge(0, 8)], second.va(16), second.token, 0);
    assert_eq!(status, SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS)]);
    assert_eq!(second.read(16, 8), pair.bytes(0, 8));
    assert_eq!(pair.bench.write(pair.qp(0), 2, &[pair.source.sge(0, 8)], second.va(16), pair.sink.token, 0), SUCCESS);
    pair.expect_entries(0, &[(2, ACCESS_VIOLATION)]);
    close!(pair.bench, second.mr => NdkCloseMr);
    pair.close();
}

#[test]
fn write_35_nothing_outside_of_the_range_is_touched() {
    let pair = Pair::new();
    for (to, len) in [(1, 1), (64, 64), (63, 130), (4095, 2), (8192, 4096)] {
        pair.sink.fill(0, &vec![0xEE; pair_bytes()]);
        assert_eq!(pair.write(1, 17, len, to, 0), SUCCESS);
        pair.expect_entries(0, &[(1, SUCCESS)]);
        let mut expected = vec![0xEE; pair_bytes()];
        expected[to..to + len as usize].copy_from_slice(&pair.bytes(17, len as usize));
        assert!(pair.sink.read(0, pair_bytes()) == expected, "{len} bytes to {to}");
    }
    pair.close();
}

#[test]
fn write_36_the_peer_consumes_no_receive_and_sees_no_entry_and_no_notification() {
    let pair = Pair::new();
    assert_eq!(ndk!(pair.qp(1), NdkReceive(5 as PVOID, null(), 0)), SUCCESS);
    ndk!(pair.cqs[1].0, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    assert_eq!(pair.write(1, 0, 100, 0, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS)]);
    pair.bench.settle();
    assert_eq!((pair.bench.take(pair.cqs[1].0, 1), pair.cqs[1].1.count()), (vec![], 0));
    ndk!(pair.qp(1), NdkFlush());
    pair.expect_entries(1, &[(5, CANCELLED)]);
    pair.close();
}

#[test]
fn write_37_the_target_must_allow_remote_writes() {
    for flags in [NDK_MR_FLAG_ALLOW_LOCAL_READ, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ, 0x4] {
        let pair = Pair::new();
        let target = pair.bench.region(pair.pds[1], 4096, flags);
        assert_eq!(pair.bench.write(pair.qp(0), 1, &[pair.source.sge(0, 8)], target.va(0), target.token, 0), SUCCESS);
        pair.expect_entries(0, &[(1, ACCESS_VIOLATION)]);
        assert_eq!(target.read(0, 8), [0xEE; 8]);
        close!(pair.bench, target.mr => NdkCloseMr);
        pair.close();
    }
    // Nor does the privileged token ever allow it.
    let pair = Pair::new();
    let mut privileged = 0;
    ndk!(pair.pds[1], NdkGetPrivilegedMemoryRegionToken(&mut privileged));
    assert_eq!(pair.bench.write(pair.qp(0), 1, &[pair.source.sge(0, 8)], 0x1000, privileged, 0), SUCCESS);
    pair.expect_entries(0, &[(1, ACCESS_VIOLATION)]);
    pair.close();
}

#[test]
fn write_38_a_refused_write_ends_the_connection_and_cancels_the_rest_on_both_sides() {
    let pair = Pair::new();
    assert_eq!(ndk!(pair.qp(1), NdkReceive(50 as PVOID, null(), 0)), SUCCESS);
    assert_eq!(ndk!(pair.qp(0), NdkReceive(51 as PVOID, null(), 0)), SUCCESS);
    assert_eq!(pair.write(1, 0, 8, 0, DEFER), SUCCESS);
    let bad = pair.bench.write(pair.qp(0), 2, &[pair.source.sge(0, 8)], pair.sink.va(100), pair.sink.token ^ 0x20, DEFER | SILENT);
    assert_eq!(bad, SUCCESS);
    assert_eq!(pair.write(3, 0, 8, 200, DEFER | SILENT), SUCCESS);
    assert_eq!(pair.write(4, 0, 8, 300, 0), SUCCESS);
    // A receive completes beside the initiator queue, in no order to it.
    let mut entries = pair.bench.reap(pair.cqs[0].0, 5);
    entries.sort_by_key(|entry| entry.request);
    let found: Vec<_> = entries.iter().map(|entry| (entry.request, entry.status)).collect();
    assert_eq!(found, [(1, SUCCESS), (2, ACCESS_VIOLATION), (3, CANCELLED), (4, CANCELLED), (51, CANCELLED)]);
    pair.expect_entries(1, &[(50, CANCELLED)]);
    pair.bench.settle();
    assert_eq!(pair.connected.events.map(Slot::calls), [(); 2].map(|()| vec![Call::Disconnected]));
    assert_eq!(pair.write(5, 0, 8, 0, 0), CONNECTION_INVALID);
    assert_eq!(pair.sink.read(100, 8), [0xEE; 8]);
    pair.expect_bytes(0, &pair.bytes(0, 8));
    pair.close();
}

#[test]
fn write_39_a_write_of_no_bytes_looks_at_no_remote_token() {
    let pair = Pair::new();
    // choice: neither end checks it, as other adapters of InfiniBand's kind.
    assert_eq!(pair.bench.write(pair.qp(0), 1, &[], 0xBAD, 0xBAD, 0), SUCCESS);
    assert_eq!(pair.bench.write(pair.qp(0), 2, &[pair.source.sge(0, 0)], 0xBAD, 0xBAD, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS), (2, SUCCESS)]);
    pair.close();
}

#[test]
fn write_41_the_last_byte_is_never_there_before_an_earlier_one() {
    let pair = Pair::new();
    let len = 20_000;
    for round in 0..3 {
        pair.sink.fill(0, &vec![0xEE; len]);
        // Bytes of the source are below 0x80, so the canary is none of them.
        assert_eq!(pair.write(round, 1, len as u32, 0, 0), SUCCESS);
        while pair.sink.read(len - 1, 1) == [0xEE] {
            pair.bench.world.run(3 + round).unwrap();
        }
        assert!(pair.sink.read(0, len) == pair.bytes(1, len), "the last byte is there, and so is everything");
        pair.expect_entries(0, &[(round, SUCCESS)]);
    }
    pair.close();
}

#[test]
fn write_42_data_is_there_when_the_completion_is() {
    // Sends, whose completion at the peer the item speaks of, have their own issue; this is what a write alone promises here.
    let pair = Pair::new();
    for (request, len) in [1, 64, 5000, 20_000].into_iter().enumerate() {
        pair.sink.fill(0, &vec![0xEE; len]);
        assert_eq!(pair.write(request as u64, 0, len as u32, 0, 0), SUCCESS);
        while pair.bench.take(pair.cqs[0].0, 1).is_empty() {
            pair.bench.world.run(2).unwrap();
        }
        assert!(pair.sink.read(0, len) == pair.bytes(0, len));
    }
    pair.close();
}

// Completion.

#[test]
fn write_43_status_and_both_contexts_are_set_bit_by_bit() {
    for context in [0, 1, 0x8000_0000_0000_0000, u64::MAX] {
        let pair = Pair::sized(QpSize { context, ..QpSize::default() });
        for request in [0, u64::MAX, 0x0123_4567_89AB_CDEF] {
            assert_eq!(pair.write(request, 0, 4, 0, 0), SUCCESS);
            let entry = pair.bench.reap(pair.cqs[0].0, 1)[0];
            assert_eq!((entry.status, entry.qp, entry.request), (SUCCESS, context, request));
        }
        pair.close();
    }
}

#[test]
fn write_44_the_type_is_write_and_the_providers_code_0_on_success() {
    let pair = Pair::new();
    assert_eq!(pair.write(1, 0, 4, 0, 0), SUCCESS);
    let entry = pair.bench.reap(pair.cqs[0].0, 1)[0];
    assert_eq!((entry.operation, entry.code), (64, 0));
    assert_eq!(pair.bench.write(pair.qp(0), 2, &[pair.source.sge(0, 4)], 0, 0xBAD00, 0), SUCCESS);
    let entry = pair.bench.reap(pair.cqs[0].0, 1)[0];
    // choice: the card's status in bits 7:0, and the syndrome of the NAK in bits 15:8.
    assert_eq!((entry.operation, entry.code), (64, 0x620A));
    pair.close();
}

#[test]
fn write_45_the_entry_goes_to_the_initiator_cq() {
    let mut bench = Bench::new();
    let pds = [0, 1].map(|side| bench.pd(side));
    let (receive, initiator) = ([0, 1].map(|side| bench.cq(side, 16).0), [0, 1].map(|side| bench.cq(side, 16).0));
    let qps = [0, 1].map(|side| bench.qp(pds[side], receive[side], initiator[side], QpSize::default()));
    let connected = bench.connect(qps);
    for request in 0..3 {
        assert_eq!(bench.write(qps[0], request, &[], 0, 0, 0), SUCCESS);
    }
    bench.settle();
    assert_eq!((bench.take(receive[0], 9).len(), bench.take(initiator[0], 9).len()), (0, 3));
    // Errors and cancellations too.
    assert_eq!(bench.write(qps[0], 3, &[NDK_SGE { Length: 1, ..NDK_SGE::default() }], 0, 0, DEFER), SUCCESS);
    assert_eq!(bench.write(qps[0], 4, &[], 0, 0, 0), SUCCESS);
    bench.settle();
    assert_eq!((bench.take(receive[0], 9).len(), bench.take(initiator[0], 9).len()), (0, 2));
    close!(bench, qps[0] => NdkCloseQp, qps[1] => NdkCloseQp, pds[0] => NdkClosePd, pds[1] => NdkClosePd,
        connected.connectors[0] => NdkCloseConnector, connected.connectors[1] => NdkCloseConnector,
        connected.listener => NdkCloseListener);
    for cq in receive.into_iter().chain(initiator) {
        close!(bench, cq => NdkCloseCq);
    }
    bench.close();
}

#[test]
fn write_46_entries_come_in_the_order_of_posting() {
    let pair = Pair::sized(QpSize { initiators: 64, ..QpSize::default() });
    for request in 0..64 {
        // Long and short ones, deferred and not.
        let (len, flags) = ([8000, 1, 0, 300][request % 4], if request % 3 == 0 { 0 } else { DEFER });
        assert_eq!(pair.write(request as u64, 0, len, 0, if request == 63 { 0 } else { flags }), SUCCESS);
    }
    pair.expect_entries(0, &(0..64).map(|request| (request, SUCCESS)).collect::<Vec<_>>());
    pair.close();
}

#[test]
fn write_47_after_the_entry_the_source_is_free_and_the_peers_card_has_the_data() {
    let pair = Pair::new();
    for round in 0..10u8 {
        pair.source.fill(0, &[round; 3000]);
        assert_eq!(pair.write(round.into(), 0, 3000, 0, 0), SUCCESS);
        pair.expect_entries(0, &[(round.into(), SUCCESS)]);
        // At once something else, which must not arrive.
        pair.source.fill(0, &[0x77; 3000]);
        assert_eq!(pair.sink.read(0, 3000), [round; 3000]);
    }
    pair.close();
}

#[test]
fn write_48_an_entry_satisfies_any_an_error_also_solicited_and_none_of_them_errors() {
    for (kind, of_success, of_failure) in [(NDK_CQ_NOTIFY_ANY, 1, 1), (NDK_CQ_NOTIFY_SOLICITED, 0, 1), (NDK_CQ_NOTIFY_ERRORS, 0, 0)] {
        for (is_good, calls) in [(true, of_success), (false, of_failure)] {
            let pair = Pair::new();
            ndk!(pair.cqs[0].0, NdkArmCq(kind));
            let token = if is_good { pair.sink.token } else { 0xBAD00 };
            assert_eq!(pair.bench.write(pair.qp(0), 1, &[pair.source.sge(0, 4)], pair.sink.va(0), token, 0), SUCCESS);
            pair.bench.settle();
            assert_eq!(pair.cqs[0].1.count(), calls, "arm {kind}, success {is_good}");
            pair.bench.reap(pair.cqs[0].0, 1);
            pair.close();
        }
    }
}

#[test]
fn write_49_a_silent_write_takes_a_slot_until_there_is_progress() {
    let pair = Pair::sized(QpSize { initiators: 4, ..QpSize::default() });
    for request in 0..4 {
        assert_eq!(pair.write(request, 0, 4, 0, SILENT), SUCCESS);
    }
    assert_eq!(pair.write(9, 0, 4, 0, SILENT), FULL, "the cards have not run");
    // choice: slots are free when the card has reported progress, without a completion.
    pair.expect_quiet();
    for request in 0..4 {
        assert_eq!(pair.write(request, 0, 4, 0, SILENT), SUCCESS);
    }
    assert_eq!(pair.write(9, 0, 4, 0, 0), FULL);
    pair.expect_quiet();
    pair.close();
}

#[test]
fn write_50_a_request_completes_once_whatever_comes_after() {
    let pair = Pair::new();
    for request in 0..3 {
        assert_eq!(pair.write(request, 0, 4, 0, 0), SUCCESS);
    }
    pair.expect_entries(0, &[(0, SUCCESS), (1, SUCCESS), (2, SUCCESS)]);
    ndk!(pair.qp(0), NdkFlush());
    ndk!(pair.qp(0), NdkFlush());
    let slot = pair.bench.slot();
    let status = ndk!(pair.connected.connectors[0], NdkDisconnect(Some(on_done), slot.context()));
    pair.bench.done(status, slot);
    pair.expect_quiet();
    pair.close();
}

// Teardown.

#[test]
fn write_51_a_flush_cancels_what_is_pending_in_order_deferred_and_silent_ones_too() {
    let pair = Pair::new();
    for request in 0..8 {
        let flags = DEFER | if request % 2 == 0 { SILENT } else { 0 };
        assert_eq!(pair.write(request, 0, 4, 0, flags), SUCCESS);
    }
    ndk!(pair.qp(0), NdkFlush());
    pair.expect_entries(0, &(0..8).map(|request| (request, CANCELLED)).collect::<Vec<_>>());
    pair.close();
}

#[test]
fn write_52_when_a_disconnect_or_a_close_is_over_no_source_is_read_any_more() {
    for by_disconnect in [true, false] {
        let pair = Pair::sized(QpSize { initiators: 64, ..QpSize::default() });
        let mut privileged = 0;
        ndk!(pair.pds[0], NdkGetPrivilegedMemoryRegionToken(&mut privileged));
        let buffer: &'static [u8] = Vec::leak(vec![1; 16 * PAGE_SIZE]);
        let mut list = mdl(buffer.as_ptr(), buffer.len());
        let mut lam = vec![0u64; 32];
        let (mut size, mut fbo) = (8 * lam.len() as u32, 0);
        let place: *mut NDK_LOGICAL_ADDRESS_MAPPING = lam.as_mut_ptr().cast();
        let adapter = pair.bench.sides[0].adapter;
        assert_eq!(ndk!(adapter, NdkBuildLAM(&mut list, buffer.len(), None, null_mut(), place, &mut size, &mut fbo)), SUCCESS);
        let sge = NDK_SGE { Address: lam[2] + u64::from(fbo), Length: 15_000, MemoryRegionToken: privileged };
        for request in 0..60 {
            assert_eq!(pair.post(request, &[sge], 0, SILENT), SUCCESS);
        }
        (0..5).for_each(|_| pair.bench.step());
        let Pair { bench, pds, cqs, connected, source, sink } = pair;
        let [active, passive] = connected.connectors;
        if by_disconnect {
            let slot = bench.slot();
            let status = ndk!(active, NdkDisconnect(Some(on_done), slot.context()));
            assert_eq!(bench.done(status, slot), SUCCESS);
        } else {
            close!(bench, active => NdkCloseConnector);
        }
        // From here on the card may reach none of it: the simulated IOMMU ends the run if it does.
        ndk!(adapter, NdkReleaseLAM(place));
        bench.settle();
        if by_disconnect {
            close!(bench, active => NdkCloseConnector);
        }
        close!(bench, passive => NdkCloseConnector, connected.qps[0] => NdkCloseQp, connected.qps[1] => NdkCloseQp,
            connected.listener => NdkCloseListener, source.mr => NdkCloseMr, sink.mr => NdkCloseMr,
            pds[0] => NdkClosePd, pds[1] => NdkClosePd, cqs[0].0 => NdkCloseCq, cqs[1].0 => NdkCloseCq);
        bench.close();
    }
}

#[test]
fn write_53_after_a_disconnect_a_post_is_refused() {
    let pair = Pair::new();
    let slot = pair.bench.slot();
    let status = ndk!(pair.connected.connectors[0], NdkDisconnect(Some(on_done), slot.context()));
    assert_eq!(pair.bench.done(status, slot), SUCCESS);
    assert_eq!(pair.write(1, 0, 4, 0, 0), CONNECTION_INVALID);
    pair.expect_quiet();
    pair.close();
}

#[test]
fn write_54_a_post_beside_a_flush_or_a_close_fails_or_completes_once() {
    for by_flush in [true, false] {
        for head_start in [0u32, 1, 50, 2_000] {
            let pair = Pair::sized(QpSize { initiators: 512, ..QpSize::default() });
            let (qp, sge, remote, token) = (pair.qp(0) as usize, pair.source.sge(0, 64), pair.sink.va(0), pair.sink.token);
            let (accepted, slot) = std::thread::scope(|scope| {
                let poster = scope.spawn(move || {
                    let mut accepted = Vec::new();
                    for request in 0..512u64 {
                        let flags = [0, DEFER, DEFER, 0][request as usize % 4];
                        match ndk!(qp as *mut NDK_QP, NdkWrite(request as PVOID, &sge, 1, remote, token, flags)) {
                            SUCCESS => accepted.push(request),
                            CONNECTION_INVALID => {}
                            other => panic!("{other:#x}"),
                        }
                    }
                    accepted
                });
                (0..head_start).for_each(|_| std::hint::spin_loop());
                let slot = if by_flush {
                    ndk!(pair.qp(0), NdkFlush());
                    None
                } else {
                    let connector = pair.connected.connectors[0];
                    // SAFETY: the connector is live, and not used any more.
                    Some(pair.bench.close_object(unsafe { (*(*connector).Dispatch).NdkCloseConnector }, connector.cast()))
                };
                // The close does its work where callbacks run, beside the poster.
                (0..20).for_each(|_| pair.bench.process());
                (poster.join().unwrap(), slot)
            });
            // A chain may have ended in a deferred one that nobody rings for: a flush does.
            ndk!(pair.qp(0), NdkFlush());
            let entries = pair.bench.reap(pair.cqs[0].0, accepted.len());
            assert_eq!(entries.iter().map(|entry| entry.request).collect::<Vec<_>>(), accepted, "flush {by_flush}, {head_start}");
            assert!(entries.iter().all(|entry| [SUCCESS, CANCELLED].contains(&entry.status)));
            pair.expect_quiet();
            match slot {
                None => pair.close(),
                Some(slot) => {
                    pair.bench.closed(slot);
                    pair.close_without_active_connector();
                }
            }
        }
    }
}

// Performance-visible.

#[test]
fn write_55_cutting_into_packets_is_invisible() {
    let pair = Pair::new();
    // 15 packets, one entry. What is lost on the way and sent again is in tests/retry.rs.
    let before = pair.packets();
    assert_eq!(pair.write(1, 3, 60_000, 1, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS)]);
    assert_eq!(pair.packets() - before, 15);
    pair.expect_quiet();
    pair.expect_bytes(1, &pair.bytes(3, 60_000));
    pair.close();
}

#[test]
fn write_56_rows_of_short_writes_and_single_long_ones_both_work() {
    /// The user-mode test program does 8 million; the rings go around often enough with these.
    const SHORT: u64 = 20_000;
    const LONG: usize = 16 << 20;
    let pair = Pair::sized(QpSize { initiators: 256, ..QpSize::default() });
    let mut next_entry = 63;
    let mut request = 0;
    while next_entry < SHORT {
        // One in 64 is signalled, the last of each chain of 16 is not deferred.
        while request < SHORT {
            let flags = (if request % 64 == 63 { 0 } else { SILENT }) | (if request % 16 == 15 { 0 } else { DEFER });
            let at = 4 * (request as usize % 1000);
            if pair.write(request, at, 4, at, flags) == FULL {
                break;
            }
            request += 1;
        }
        pair.bench.step();
        for entry in pair.bench.take(pair.cqs[0].0, 64) {
            assert_eq!((entry.status, entry.request), (SUCCESS, next_entry));
            next_entry += 64;
        }
    }
    pair.expect_bytes(0, &pair.bytes(0, 4000));
    let source = pair.bench.region(pair.pds[0], LONG, NDK_MR_FLAG_ALLOW_LOCAL_READ);
    let sink = pair.bench.region(pair.pds[1], LONG, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    source.fill(0, &(0..LONG as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>());
    assert_eq!(pair.bench.write(pair.qp(0), 1, &[source.sge(0, LONG as u32)], sink.va(0), sink.token, 0), SUCCESS);
    pair.expect_entries(0, &[(1, SUCCESS)]);
    assert!(sink.read(0, LONG) == source.read(0, LONG));
    close!(pair.bench, source.mr => NdkCloseMr, sink.mr => NdkCloseMr);
    pair.close();
}

#[test]
fn write_57_traffic_is_counted() {
    let pair = Pair::new();
    let before = pair.packets();
    for request in 0..5 {
        assert_eq!(pair.write(request, 0, 5000, 0, 0), SUCCESS);
    }
    pair.bench.reap(pair.cqs[0].0, 5);
    // choice: the card counts packets; NDIS' octets have no counter yet. Two packets of up to 4096 bytes each.
    assert_eq!(pair.packets() - before, 10);
    pair.close();
}

// Helpers.

/// Bytes of each region of a pair.
const fn pair_bytes() -> usize {
    64 * KIB
}

/// Two connected QPs with a source at side 0, whose bytes are below 0x80, and a sink of canaries at side 1.
struct Pair {
    bench: Bench,
    pds: [*mut NDK_PD; 2],
    cqs: [(*mut NDK_CQ, &'static Slot); 2],
    connected: Connected,
    source: Region,
    sink: Region,
}

impl Pair {
    fn new() -> Self {
        Self::sized(QpSize::default())
    }

    fn sized(size: QpSize) -> Self {
        let mut bench = Bench::new();
        let (pds, cqs) = ([0, 1].map(|side| bench.pd(side)), [0, 1].map(|side| bench.cq(side, 2048)));
        let qps = [0, 1].map(|side| bench.qp(pds[side], cqs[side].0, cqs[side].0, size));
        let source = bench.region(pds[0], pair_bytes(), NDK_MR_FLAG_ALLOW_LOCAL_READ);
        source.fill(0, &(0..pair_bytes()).map(|index| ((index * 13 + index / 100) % 0x80) as u8).collect::<Vec<_>>());
        let sink = bench.region(pds[1], pair_bytes(), NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        let connected = bench.connect(qps);
        Self { bench, pds, cqs, connected, source, sink }
    }

    fn qp(&self, side: usize) -> *mut NDK_QP {
        self.connected.qps[side]
    }

    /// Returns an unconnected QP of side 0.
    fn another_qp(&self) -> *mut NDK_QP {
        self.bench.qp(self.pds[0], self.cqs[0].0, self.cqs[0].0, QpSize::default())
    }

    /// Returns bytes of the source.
    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.source.read(at, len)
    }

    /// Posts a write of one piece.
    fn write(&self, request: u64, from: usize, len: u32, to: usize, flags: u32) -> NTSTATUS {
        self.post(request, &[self.source.sge(from, len)], to, flags)
    }

    fn post(&self, request: u64, sges: &[NDK_SGE], to: usize, flags: u32) -> NTSTATUS {
        self.bench.write(self.qp(0), request, sges, self.sink.va(to), self.sink.token, flags)
    }

    /// Waits for these entries of a side's CQ, in this order.
    #[track_caller]
    fn expect_entries(&self, side: usize, expected: &[(u64, NTSTATUS)]) {
        let entries = self.bench.reap(self.cqs[side].0, expected.len());
        assert_eq!(entries.iter().map(|entry| (entry.request, entry.status)).collect::<Vec<_>>(), expected);
        assert!(expected.len() > 4 || entries.iter().all(|entry| entry.qp == QP || entry.operation == 64 || entry.operation == 1));
    }

    /// Checks that no entry comes.
    #[track_caller]
    fn expect_quiet(&self) {
        self.bench.settle();
        assert_eq!(self.bench.take(self.cqs[0].0, 8), []);
    }

    /// Checks bytes of the sink, and the canaries on both sides of them.
    #[track_caller]
    fn expect_bytes(&self, at: usize, expected: &[u8]) {
        let start = at.saturating_sub(1);
        let found = self.sink.read(start, expected.len() + 1 + at - start);
        assert!(found[at - start..found.len() - 1] == *expected, "bytes at {at}");
        assert!(at == 0 || found[0] == 0xEE, "the byte in front of {at}");
        assert_eq!(*found.last().unwrap(), 0xEE, "the byte behind {}", at + expected.len());
    }

    /// Returns the packets that card 0 has sent.
    fn packets(&self) -> u32 {
        self.bench.sides[0].card.bar().read32(Counter::TxPackets.offset())
    }

    fn close(self) {
        let Self { bench, pds, cqs, connected, source, sink } = self;
        close!(bench, connected.connectors[0] => NdkCloseConnector);
        Self { bench, pds, cqs, connected, source, sink }.close_without_active_connector();
    }

    fn close_without_active_connector(self) {
        let Self { bench, pds, cqs, connected, source, sink } = self;
        close!(bench, connected.qps[0] => NdkCloseQp, connected.qps[1] => NdkCloseQp, connected.connectors[1] => NdkCloseConnector,
            connected.listener => NdkCloseListener, source.mr => NdkCloseMr, sink.mr => NdkCloseMr,
            pds[0] => NdkClosePd, pds[1] => NdkClosePd, cqs[0].0 => NdkCloseCq, cqs[1].0 => NdkCloseCq);
        bench.close();
    }
}
