//! Protection domains.

use std::sync::Arc;

use verbena_host::ndk::NtStatus;
use verbena_host::{Pd, PrivilegedMr, QpOptions, Submitted};

use crate::abi::*;
use crate::adapter::AdapterObject;
use crate::cq::CqObject;
use crate::mr::MrObject;
use crate::object::{close, failed, query_extension, status, Closable, ClosingSlot, Creation, Kind, Object};
use crate::qp::QpObject;

pub(crate) struct PdObject {
    pub(crate) pd: Option<Arc<Pd>>,
    privileged: Option<PrivilegedMr>,
    pub(crate) adapter: Arc<Object<AdapterObject>>,
    closing: ClosingSlot,
}

impl Kind for PdObject {
    type Public = NDK_PD;
    type Dispatch = NDK_PD_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypePd;
    const TABLE: &'static NDK_PD_DISPATCH = &NDK_PD_DISPATCH {
        NdkClosePd: Some(close::<PdObject>),
        NdkQueryExtension: Some(query_extension),
        NdkCreateMr: Some(create_mr),
        NdkCreateMw: Some(create_mw),
        NdkCreateSrq: Some(create_srq),
        NdkCreateQp: Some(create_qp),
        NdkCreateQpWithSrq: Some(create_qp_with_srq),
        NdkGetPrivilegedMemoryRegionToken: Some(privileged_token),
    };
}

impl Closable for PdObject {
    fn closing(&self) -> &ClosingSlot {
        &self.closing
    }
}

impl PdObject {
    /// Returns the driver's domain. It is there as long as the object is.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        self.pd.as_ref().expect("taken by the drop alone")
    }
}

impl Drop for PdObject {
    fn drop(&mut self) {
        let Some(pd) = self.pd.take() else { return };
        let finish = self.closing.finish(pd.adapter(), Arc::clone(&self.adapter));
        // The privileged region goes first, and holds the domain until it has left the card.
        self.privileged = None;
        let _ = pd.close(move || drop(finish));
    }
}

/// `NDK_FN_CREATE_PD`. The privileged token is a region on the card, so a domain is created with a command.
pub(crate) unsafe extern "C" fn create(
    adapter: *mut NDK_ADAPTER,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    _pd: *mut *mut NDK_PD,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live adapter.
    let (Some(adapter), Some(creation)) = (unsafe { Object::<AdapterObject>::share(adapter) }, Creation::new(completion, context)) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let pd = match Pd::create(adapter.host()) {
        Ok(pd) => pd,
        Err(error) => return failed(&error),
    };
    let shared = Arc::clone(&pd);
    let submitted = PrivilegedMr::register(&pd, move |outcome| {
        let version = adapter.version;
        creation.call(outcome.map(|privileged| {
            let closing = ClosingSlot::default();
            Object::new(version, PdObject { pd: Some(shared), privileged: Some(privileged), adapter, closing })
        }));
    });
    match submitted {
        Ok(Submitted::Pending) => status(NtStatus::PENDING),
        Err(error) => failed(&error),
    }
}

unsafe extern "C" fn privileged_token(pd: *mut NDK_PD, token: *mut UINT32) {
    // SAFETY: the consumer gives a live domain and a place for the token.
    if let (Some(pd), Some(token)) = unsafe { (Object::<PdObject>::borrow(pd), token.as_mut()) } {
        *token = pd.privileged.as_ref().map_or(0, PrivilegedMr::lkey);
    }
}

unsafe extern "C" fn create_mr(
    pd: *mut NDK_PD,
    fast_register: BOOLEAN,
    completion: NDK_FN_CREATE_COMPLETION,
    _context: PVOID,
    out: *mut *mut NDK_MR,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live domain and a place for the object.
    let (Some(pd), Some(out), Some(_)) = (unsafe { Object::<PdObject>::share(pd) }, unsafe { out.as_mut() }, completion) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    // The card has no part in it before the region is registered, so there is nothing to wait for.
    *out = MrObject::create(pd, fast_register != 0).into_public();
    status(NtStatus::SUCCESS)
}

unsafe extern "C" fn create_mw(_: *mut NDK_PD, _: NDK_FN_CREATE_COMPLETION, _: PVOID, _: *mut *mut NDK_MW) -> NTSTATUS {
    // `MaxWindowSize` is 0.
    status(NtStatus::NOT_SUPPORTED)
}

unsafe extern "C" fn create_srq(
    pd: *mut NDK_PD,
    depth: ULONG,
    sges: ULONG,
    _notify_threshold: ULONG,
    _notification: NDK_FN_SRQ_NOTIFICATION_CALLBACK,
    _notification_context: PVOID,
    _affinity: *mut GROUP_AFFINITY,
    _completion: NDK_FN_CREATE_COMPLETION,
    _context: PVOID,
    _srq: *mut *mut NDK_SRQ,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live domain.
    let Some(pd) = (unsafe { Object::<PdObject>::borrow(pd) }) else { return status(NtStatus::INVALID_PARAMETER) };
    // `MaxSrqDepth` is 0.
    let is_beyond = depth > 0 || sges > pd.adapter.host().info().max_receive_sges;
    status(if is_beyond { NtStatus::INVALID_PARAMETER } else { NtStatus::NOT_SUPPORTED })
}

unsafe extern "C" fn create_qp(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    qp_context: PVOID,
    receive_depth: ULONG,
    initiator_depth: ULONG,
    receive_sges: ULONG,
    initiator_sges: ULONG,
    inline_bytes: ULONG,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    _qp: *mut *mut NDK_QP,
) -> NTSTATUS {
    let creation = Creation::new(completion, context);
    // SAFETY: the consumer gives a live domain and live CQs.
    let objects =
        unsafe { (Object::<PdObject>::share(pd), Object::<CqObject>::share(receive_cq), Object::<CqObject>::share(initiator_cq)) };
    let ((Some(pd), Some(receive_cq), Some(initiator_cq)), Some(creation)) = (objects, creation) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let options = QpOptions {
        context: qp_context as u64,
        send_depth: initiator_depth,
        receive_depth,
        send_sges: initiator_sges,
        receive_sges,
        inline_bytes,
        first_psn: None,
    };
    QpObject::create(pd, receive_cq, initiator_cq, options, creation)
}

unsafe extern "C" fn create_qp_with_srq(
    pd: *mut NDK_PD,
    _receive_cq: *mut NDK_CQ,
    _initiator_cq: *mut NDK_CQ,
    _srq: *mut NDK_SRQ,
    _qp_context: PVOID,
    initiator_depth: ULONG,
    initiator_sges: ULONG,
    inline_bytes: ULONG,
    _completion: NDK_FN_CREATE_COMPLETION,
    _context: PVOID,
    _qp: *mut *mut NDK_QP,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live domain.
    let Some(pd) = (unsafe { Object::<PdObject>::borrow(pd) }) else { return status(NtStatus::INVALID_PARAMETER) };
    let info = pd.adapter.host().info();
    let is_beyond = initiator_depth > info.max_send_depth || initiator_sges > info.max_send_sges || inline_bytes > info.max_inline_bytes;
    // There is no SRQ that could be given.
    status(if is_beyond { NtStatus::INVALID_PARAMETER } else { NtStatus::NOT_SUPPORTED })
}
