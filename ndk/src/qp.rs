//! Queue pairs: creation and the posting calls.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::Arc;

use verbena_host::ndk::NtStatus;
use verbena_host::{Error, Qp, QpOptions, QpState, ReceiveQueue, SendQueue, Sge, Submitted, WriteFlags};

use crate::abi::*;
use crate::cq::CqObject;
use crate::object::{close, failed, query_extension, slice, status, Closable, ClosingSlot, Creation, Kind, Object};
use crate::pd::PdObject;

pub(crate) struct QpObject {
    // Taken by the drop alone, the queues before what they hold.
    initiator: UnsafeCell<Option<SendQueue>>,
    receive: UnsafeCell<Option<ReceiveQueue>>,
    qp: Option<Arc<Qp>>,
    antecedents: Antecedents,
    closing: ClosingSlot,
}

// SAFETY: the consumer posts to one queue of one QP serially, by contract (NDKPI: calls to the initiator queue, and calls to the receive
// queue, are serialised by the consumer); nothing else touches the cells. All else is `Sync`.
unsafe impl Sync for QpObject {}

#[derive(Clone)]
struct Antecedents {
    pd: Arc<Object<PdObject>>,
    _receive_cq: Arc<Object<CqObject>>,
    _initiator_cq: Arc<Object<CqObject>>,
}

impl Kind for QpObject {
    type Public = NDK_QP;
    type Dispatch = NDK_QP_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeQp;
    const TABLE: &'static NDK_QP_DISPATCH = &NDK_QP_DISPATCH {
        NdkCloseQp: Some(close::<QpObject>),
        NdkQueryExtension: Some(query_extension),
        NdkFlush: Some(flush),
        NdkSend: Some(send),
        NdkReceive: Some(receive),
        NdkBind: Some(bind),
        NdkFastRegister: Some(fast_register),
        NdkInvalidate: Some(invalidate),
        NdkRead: Some(read),
        NdkWrite: Some(write),
        NdkSendAndInvalidate: Some(send_and_invalidate),
    };

    fn stop(&self) {
        self.qp().flush();
    }
}

impl Closable for QpObject {
    fn closing(&self) -> &ClosingSlot {
        &self.closing
    }
}

impl QpObject {
    /// Asks the driver for a QP.
    pub(crate) fn create(
        pd: Arc<Object<PdObject>>,
        receive_cq: Arc<Object<CqObject>>,
        initiator_cq: Arc<Object<CqObject>>,
        options: QpOptions,
        creation: Creation,
    ) -> NTSTATUS {
        let antecedents = Antecedents { pd, _receive_cq: receive_cq, _initiator_cq: initiator_cq };
        let held = antecedents.clone();
        let (pd, receive_cq, initiator_cq) = (held.pd.pd(), held._receive_cq.cq(), held._initiator_cq.cq());
        let submitted = Qp::create(pd, initiator_cq, receive_cq, options, move |outcome| {
            let version = antecedents.pd.adapter.version;
            creation.call(outcome.map(|qp| {
                let kind = Self {
                    initiator: UnsafeCell::new(qp.take_send_queue()),
                    receive: UnsafeCell::new(qp.take_receive_queue()),
                    qp: Some(qp),
                    antecedents,
                    closing: ClosingSlot::default(),
                };
                Object::new(version, kind)
            }));
        });
        match submitted {
            Ok(Submitted::Pending) => status(NtStatus::PENDING),
            Err(error) => failed(&error),
        }
    }

    /// Returns the driver's QP. It is there as long as the object is.
    pub(crate) fn qp(&self) -> &Arc<Qp> {
        self.qp.as_ref().expect("taken by the drop alone")
    }

    /// Returns the initiator queue.
    ///
    /// # Safety
    /// The caller is the one posting call of this queue that is under way.
    #[allow(clippy::mut_from_ref, reason = "the contract of NDKPI's posting calls is that of a mutable borrow")]
    unsafe fn initiator(&self) -> &mut SendQueue {
        // SAFETY: nobody else has a reference, by the caller's word.
        unsafe { (*self.initiator.get()).as_mut() }.expect("taken by the drop alone")
    }
}

impl Drop for QpObject {
    fn drop(&mut self) {
        self.initiator.get_mut().take();
        self.receive.get_mut().take();
        let Some(qp) = self.qp.take() else { return };
        let finish = self.closing.finish(qp.pd().adapter(), self.antecedents.clone());
        let _ = qp.close(move || drop(finish));
    }
}

unsafe extern "C" fn flush(qp: *mut NDK_QP) {
    // SAFETY: the consumer gives a live QP.
    if let Some(qp) = unsafe { Object::<QpObject>::borrow(qp) } {
        qp.qp().flush();
    }
}

fn outcome(result: Result<(), Error>) -> NTSTATUS {
    match result {
        Ok(()) => status(NtStatus::SUCCESS),
        Err(error) => failed(&error),
    }
}

/// Returns the entries of a request as the driver has them, or nothing for a null list with entries.
///
/// # Safety
/// The list is valid for `count` entries during the call.
unsafe fn sges<'a>(list: *const NDK_SGE, count: ULONG) -> Option<&'a [Sge]> {
    const _: () = assert!(size_of::<Sge>() == size_of::<NDK_SGE>() && align_of::<Sge>() <= align_of::<NDK_SGE>());
    const _: () =
        assert!(std::mem::offset_of!(Sge, va) == 0 && std::mem::offset_of!(Sge, len_bytes) == 8 && std::mem::offset_of!(Sge, lkey) == 12);
    // SAFETY: the caller vouches for the list; both structures have the same fields at the same places.
    unsafe { slice(list.cast(), count as usize) }
}

unsafe extern "C" fn write(
    qp: *mut NDK_QP,
    context: PVOID,
    list: *const NDK_SGE,
    count: ULONG,
    remote_address: UINT64,
    remote_token: UINT32,
    flags: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live QP and posts serially.
    let Some(object) = (unsafe { Object::<QpObject>::borrow(qp) }) else { return status(NtStatus::INVALID_PARAMETER) };
    // SAFETY: as above.
    let queue = unsafe { object.initiator() };
    let (context, flags) = (context as u64, WriteFlags(flags));
    let is_inline = flags.contains(WriteFlags::INLINE);
    // Before a slice is made of it: a list that is too long need not be there.
    if !is_inline && count > queue.max_sges() {
        // SAFETY: as above.
        return unsafe { refuse(qp, NtStatus::DATA_OVERRUN) };
    }
    // SAFETY: the list is the consumer's, valid during the call.
    let Some(sges) = (unsafe { sges(list, count) }) else {
        // SAFETY: as above.
        return unsafe { refuse(qp, NtStatus::INVALID_PARAMETER) };
    };
    outcome(if is_inline {
        // Before anything looks at the memory: there is none at null, and as much as an entry can name there need not be.
        if sges.iter().any(|sge| sge.va == 0 && sge.len_bytes != 0) {
            // SAFETY: as above.
            return unsafe { refuse(qp, NtStatus::INVALID_PARAMETER) };
        }
        let (len_bytes, limit) = (sges.iter().map(|sge| u64::from(sge.len_bytes)).sum(), queue.max_inline_bytes());
        if len_bytes > u64::from(limit) {
            // SAFETY: as above.
            return unsafe { refuse(qp, Error::InlineTooLong { len_bytes, limit }.nt_status()) };
        }
        // SAFETY: with INLINE the consumer vouches for the memory that the entries name, during the call.
        let pieces = sges.iter().map(|sge| unsafe { slice(sge.va as *const u8, sge.len_bytes as usize) }.unwrap_or_default());
        queue.write_inline_from(context, pieces, remote_address, remote_token, flags)
    } else {
        queue.write(context, sges, remote_address, remote_token, flags)
    })
}

unsafe extern "C" fn receive(qp: *mut NDK_QP, context: PVOID, list: *const NDK_SGE, count: ULONG) -> NTSTATUS {
    // SAFETY: the consumer gives a live QP.
    let Some(qp) = (unsafe { Object::<QpObject>::borrow(qp) }) else { return status(NtStatus::INVALID_PARAMETER) };
    // SAFETY: the consumer posts receives serially, and nobody else has a reference.
    let queue = unsafe { (*qp.receive.get()).as_mut() }.expect("taken by the drop alone");
    // As in `write`.
    if count > queue.max_sges() {
        return status(NtStatus::DATA_OVERRUN);
    }
    // SAFETY: the list is the consumer's, valid during the call.
    let Some(sges) = (unsafe { sges(list, count) }) else { return status(NtStatus::INVALID_PARAMETER) };
    outcome(queue.post(context as u64, sges))
}

/// Answers an initiator request that can't be posted: by the connection first, as every initiator request; and what was
/// deferred goes to the card, as behind every failure.
///
/// # Safety
/// As [`write`].
unsafe fn refuse(qp: *mut NDK_QP, why: NtStatus) -> NTSTATUS {
    // SAFETY: the consumer gives a live QP and posts serially.
    let Some(qp) = (unsafe { Object::<QpObject>::borrow(qp) }) else { return status(NtStatus::INVALID_PARAMETER) };
    // SAFETY: as above.
    unsafe { qp.initiator() }.ring_doorbell();
    status(if qp.qp().state() == QpState::Rts { why } else { NtStatus::CONNECTION_INVALID })
}

unsafe extern "C" fn send(qp: *mut NDK_QP, _: PVOID, _: *const NDK_SGE, _: ULONG, _: ULONG) -> NTSTATUS {
    // SAFETY: the consumer's, as of `write`.
    unsafe { refuse(qp, NtStatus::NOT_SUPPORTED) }
}

unsafe extern "C" fn bind(qp: *mut NDK_QP, _: PVOID, _: *mut NDK_MR, _: *mut NDK_MW, _: PVOID, _: SIZE_T, _: ULONG) -> NTSTATUS {
    // SAFETY: the consumer's, as of `write`.
    unsafe { refuse(qp, NtStatus::NOT_SUPPORTED) }
}

unsafe extern "C" fn fast_register(
    qp: *mut NDK_QP,
    _: PVOID,
    _: *mut NDK_MR,
    _: ULONG,
    _: *const NDK_LOGICAL_ADDRESS,
    _: ULONG,
    _: SIZE_T,
    _: *mut c_void,
    _: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer's, as of `write`.
    unsafe { refuse(qp, NtStatus::NOT_SUPPORTED) }
}

unsafe extern "C" fn invalidate(qp: *mut NDK_QP, _: PVOID, _: *mut NDK_OBJECT_HEADER, _: ULONG) -> NTSTATUS {
    // SAFETY: the consumer's, as of `write`.
    unsafe { refuse(qp, NtStatus::NOT_SUPPORTED) }
}

unsafe extern "C" fn read(qp: *mut NDK_QP, _: PVOID, _: *const NDK_SGE, _: ULONG, _: UINT64, _: UINT32, _: ULONG) -> NTSTATUS {
    // SAFETY: the consumer's, as of `write`.
    unsafe { refuse(qp, NtStatus::NOT_SUPPORTED) }
}

unsafe extern "C" fn send_and_invalidate(qp: *mut NDK_QP, _: PVOID, _: *const NDK_SGE, _: ULONG, _: ULONG, _: UINT32) -> NTSTATUS {
    // SAFETY: the consumer's, as of `write`.
    unsafe { refuse(qp, NtStatus::NOT_SUPPORTED) }
}
