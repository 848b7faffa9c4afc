//! Completion queues.

use std::sync::Arc;

use verbena_host::ndk::{NdkResult, NtStatus, OperationType};
use verbena_host::{ArmKind, Completion, Cq, CqNotice, Submitted};

use crate::abi::*;
use crate::adapter::AdapterObject;
use crate::object::{close, failed, query_extension, status, Closable, ClosingSlot, Context, Creation, Kind, Object};

/// Completions that are taken from the driver at once, if a consumer wants few, and if it wants many.
const FEW: usize = 2;
const MANY: usize = 32;

pub(crate) struct CqObject {
    cq: Option<Arc<Cq>>,
    adapter: Arc<Object<AdapterObject>>,
    closing: ClosingSlot,
}

impl Kind for CqObject {
    type Public = NDK_CQ;
    type Dispatch = NDK_CQ_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeCq;
    const TABLE: &'static NDK_CQ_DISPATCH = &NDK_CQ_DISPATCH {
        NdkCloseCq: Some(close::<CqObject>),
        NdkQueryExtension: Some(query_extension),
        NdkResizeCq: Some(resize),
        NdkArmCq: Some(arm),
        NdkGetCqResults: Some(results),
        NdkControlCqInterruptModeration: Some(moderate),
        NdkGetCqResultsEx: Some(results_ex),
    };
}

impl Closable for CqObject {
    fn closing(&self) -> &ClosingSlot {
        &self.closing
    }
}

impl CqObject {
    /// Returns the driver's CQ. It is there as long as the object is.
    pub(crate) fn cq(&self) -> &Arc<Cq> {
        self.cq.as_ref().expect("taken by the drop alone")
    }
}

impl Drop for CqObject {
    fn drop(&mut self) {
        let Some(cq) = self.cq.take() else { return };
        let finish = self.closing.finish(cq.adapter(), Arc::clone(&self.adapter));
        let _ = cq.close(move || drop(finish));
    }
}

/// `NDK_FN_CREATE_CQ`. The affinity is a wish that this driver, which runs callbacks where it is asked for events, can't honour.
pub(crate) unsafe extern "C" fn create(
    adapter: *mut NDK_ADAPTER,
    depth: ULONG,
    notification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    notification_context: PVOID,
    _affinity: *mut GROUP_AFFINITY,
    completion: NDK_FN_CREATE_COMPLETION,
    context: PVOID,
    _cq: *mut *mut NDK_CQ,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live adapter.
    let adapter = unsafe { Object::<AdapterObject>::share(adapter) };
    let (Some(adapter), Some(creation), Some(notification)) = (adapter, Creation::new(completion, context), notification) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let notification_context = Context::new(notification_context);
    let notify = move |_: &Arc<Cq>, notice: CqNotice| {
        let cq_status = match notice {
            CqNotice::Completion => NtStatus::SUCCESS,
            CqNotice::Overrun => NtStatus::BUFFER_OVERFLOW,
        };
        // SAFETY: the consumer gave function and context for these calls, the last of which is over before the CQ's close is.
        unsafe { notification(notification_context.pointer(), status(cq_status)) };
    };
    let host = Arc::clone(adapter.host());
    let submitted = Cq::create(&host, depth, Some(Box::new(notify)), move |outcome| {
        let version = adapter.version;
        creation.call(outcome.map(|cq| Object::new(version, CqObject { cq: Some(cq), adapter, closing: ClosingSlot::default() })));
    });
    match submitted {
        Ok(Submitted::Pending) => status(NtStatus::PENDING),
        Err(error) => failed(&error),
    }
}

unsafe extern "C" fn resize(cq: *mut NDK_CQ, depth: ULONG, _: NDK_FN_REQUEST_COMPLETION, _: PVOID) -> NTSTATUS {
    // SAFETY: the consumer gives a live CQ.
    let Some(cq) = (unsafe { Object::<CqObject>::borrow(cq) }) else { return status(NtStatus::INVALID_PARAMETER) };
    // `CQ_RESIZE_SUPPORTED` is not set.
    let is_beyond = depth > cq.adapter.host().info().max_cq_depth;
    status(if is_beyond { NtStatus::INVALID_PARAMETER } else { NtStatus::NOT_SUPPORTED })
}

unsafe extern "C" fn arm(cq: *mut NDK_CQ, kind: ULONG) {
    // SAFETY: the consumer gives a live CQ.
    let Some(cq) = (unsafe { Object::<CqObject>::borrow(cq) }) else { return };
    let kind = match kind {
        NDK_CQ_NOTIFY_ERRORS => ArmKind::Errors,
        NDK_CQ_NOTIFY_SOLICITED => ArmKind::Solicited,
        // An arm can't fail, and one that calls too often is better than one that never does.
        _ => ArmKind::Any,
    };
    cq.cq().arm(kind);
}

unsafe extern "C" fn moderate(cq: *mut NDK_CQ, interval_us: ULONG, count: ULONG) -> NTSTATUS {
    // SAFETY: the consumer gives a live CQ.
    let Some(cq) = (unsafe { Object::<CqObject>::borrow(cq) }) else { return status(NtStatus::INVALID_PARAMETER) };
    if !cq.adapter.host().can_moderate() {
        // `CQ_INTERRUPT_MODERATION_SUPPORTED` is not set.
        return status(NtStatus::NOT_SUPPORTED);
    }
    match cq.cq().moderate(interval_us, count) {
        Ok(()) => status(NtStatus::SUCCESS),
        Err(error) => failed(&error),
    }
}

unsafe extern "C" fn results(cq: *mut NDK_CQ, to: *mut NDK_RESULT, count: ULONG) -> ULONG {
    let put = |index, result: &NdkResult| {
        let entry = NDK_RESULT {
            Status: status(result.status),
            BytesTransferred: result.bytes_transferred,
            QPContext: result.qp_context as PVOID,
            RequestContext: result.request_context as PVOID,
        };
        // SAFETY: the consumer gives room for as many as it asks for.
        unsafe { to.add(index).write(entry) };
    };
    // SAFETY: the consumer gives a live CQ.
    unsafe { take(cq, count, put) }
}

unsafe extern "C" fn results_ex(cq: *mut NDK_CQ, to: *mut NDK_RESULT_EX, count: ULONG) -> ULONG {
    let put = |index, result: &NdkResult| {
        let entry = NDK_RESULT_EX {
            Status: status(result.status),
            BytesTransferred: result.bytes_transferred,
            QPContext: result.qp_context as PVOID,
            RequestContext: result.request_context as PVOID,
            Type: match result.operation {
                OperationType::Receive => NDK_OPERATION_TYPE::NdkOperationTypeReceive,
                OperationType::Write => NDK_OPERATION_TYPE::NdkOperationTypeWrite,
            },
            ProviderErrorCode: result.provider_error_code,
            TypeSpecificCompletionOutput: 0,
        };
        // SAFETY: the consumer gives room for as many as it asks for.
        unsafe { to.add(index).write(entry) };
    };
    // SAFETY: the consumer gives a live CQ.
    unsafe { take(cq, count, put) }
}

/// Takes up to `count` completions and returns how many there were.
///
/// # Safety
/// As [`Object::borrow`].
unsafe fn take(cq: *mut NDK_CQ, count: ULONG, put: impl Fn(usize, &NdkResult)) -> ULONG {
    // SAFETY: the caller vouches for the pointer.
    let Some(cq) = (unsafe { Object::<CqObject>::borrow(cq) }) else { return 0 };
    let count = count as usize;
    // A batch has to be cleared before it is filled, which costs more than a single completion.
    (if count <= FEW { take_by::<FEW>(cq.cq(), count, put) } else { take_by::<MANY>(cq.cq(), count, put) }) as ULONG
}

fn take_by<const BATCH: usize>(cq: &Cq, count: usize, put: impl Fn(usize, &NdkResult)) -> usize {
    let mut batch = [Completion::default(); BATCH];
    let mut taken = 0;
    while taken < count {
        let wanted = (count - taken).min(BATCH);
        let got = cq.poll(&mut batch[..wanted]);
        for (index, completion) in batch[..got].iter().enumerate() {
            put(taken + index, &NdkResult::from(*completion));
        }
        taken += got;
        if got < wanted {
            break;
        }
    }
    taken
}
