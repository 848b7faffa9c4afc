// The verilated models behind plain C functions: one call a clock, a plain struct each way.
// The structs are those of `ffi.rs`, field for field. Beats are copied only while they are valid.
//
// A clock: inputs are applied and everything combinational settles while `clk` is low; the outputs
// of that moment are what the rising edge sees, so they are what the caller gets; then the edge.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "Vcore.h"
#include "Vrxfront.h"
#include "verilated.h"
#if VERBENA_FST
#include "Vcoretrace.h"
#include "verilated_fst_c.h"
#endif

namespace {

struct Beat {
    uint8_t data[64];
    uint64_t keep;
    uint8_t valid, last, user, pad[5];
};

struct AxilIn {
    uint32_t awaddr, wdata, araddr;
    uint8_t awvalid, wvalid, wstrb, bready, arvalid, rready, pad[2];
};

struct AxilOut {
    uint32_t rdata;
    uint8_t awready, wready, bvalid, bresp, arready, rvalid, rresp, pad;
};

struct AxiIn {
    uint8_t rdata[64];
    uint8_t arready, rvalid, rid, rresp, rlast, awready, wready, bvalid, bid, bresp, pad[6];
};

struct AxiOut {
    uint8_t wdata[64];
    uint64_t wstrb, araddr, awaddr;
    uint8_t arvalid, arid, arlen, arsize, arburst, rready;
    uint8_t awvalid, awid, awlen, awsize, awburst;
    uint8_t wvalid, wlast, bready, pad[2];
};

struct CoreIn {
    AxilIn axil;
    AxiIn axi;
    Beat rx;
    uint8_t rst, irq_ready, tx_ready, pad[5];
};

struct CoreOut {
    AxilOut axil;
    AxiOut axi;
    Beat tx;
    uint8_t irq_valid, irq_vector, rx_ready, pad[5];
};

struct RxFrontIn {
    Beat rx;
    uint64_t cfg_mac;
    uint32_t cfg_ipv6[4];
    uint32_t cfg_ipv4;
    uint8_t cfg_promiscuous, rst, pad[2];
};

struct RxFrontOut {
    uint64_t reth_va;
    uint32_t reth_rkey, reth_len, imm, dqpn, psn, aeth_msn;
    uint16_t pkey, payload_len, sport;
    uint8_t rx_ready, valid, verdict, icrc_ok, is_roce, opcode, se, migreq, pad_count, tver, fecn, becn, ackreq;
    uint8_t has_reth, has_aeth, aeth_syndrome, has_imm, ipv6, vlan, pad[7];
};

// A model with a context of its own, so that models run in threads of their own.
template <class Top>
struct Model {
    std::unique_ptr<VerilatedContext> context{new VerilatedContext};
    std::unique_ptr<Top> top{new Top{context.get(), "verbena"}};

    Model() { top->clk = 0; }
    ~Model() { top->final(); }

    void eval(uint8_t clk) {
        top->clk = clk;
        top->eval();
    }
};

using RxFront = Model<Vrxfront>;

template <class Wide>
void load(Wide& port, const uint8_t (&bytes)[64]) {
    static_assert(sizeof(port) == 64, "a beat has 512 bits");
    std::memcpy(&port, bytes, 64);
}

template <class Wide>
void store(uint8_t (&bytes)[64], const Wide& port) {
    static_assert(sizeof(port) == 64, "a beat has 512 bits");
    std::memcpy(bytes, &port, 64);
}

// A core, with or without the ability to dump: writing down what changed costs a tenth of the speed
// even when no file is open, so that is a model of its own.
struct Core {
    virtual ~Core() = default;
    virtual void step(const CoreIn* in, CoreOut* out, uint64_t time_ns) = 0;
};

template <class Top>
void drive(Top& top, const CoreIn* in) {
    top.rst = in->rst;
    top.s_axil_awaddr = in->axil.awaddr;
    top.s_axil_awvalid = in->axil.awvalid;
    top.s_axil_wdata = in->axil.wdata;
    top.s_axil_wstrb = in->axil.wstrb;
    top.s_axil_wvalid = in->axil.wvalid;
    top.s_axil_bready = in->axil.bready;
    top.s_axil_araddr = in->axil.araddr;
    top.s_axil_arvalid = in->axil.arvalid;
    top.s_axil_rready = in->axil.rready;
    top.m_axi_arready = in->axi.arready;
    top.m_axi_rvalid = in->axi.rvalid;
    if (in->axi.rvalid) {
        load(top.m_axi_rdata, in->axi.rdata);
        top.m_axi_rid = in->axi.rid;
        top.m_axi_rresp = in->axi.rresp;
        top.m_axi_rlast = in->axi.rlast;
    }
    top.m_axi_awready = in->axi.awready;
    top.m_axi_wready = in->axi.wready;
    top.m_axi_bvalid = in->axi.bvalid;
    top.m_axi_bid = in->axi.bid;
    top.m_axi_bresp = in->axi.bresp;
    top.irq_ready = in->irq_ready;
    top.m_axis_tx_tready = in->tx_ready;
    top.s_axis_rx_tvalid = in->rx.valid;
    if (in->rx.valid) {
        load(top.s_axis_rx_tdata, in->rx.data);
        top.s_axis_rx_tkeep = in->rx.keep;
        top.s_axis_rx_tlast = in->rx.last;
        top.s_axis_rx_tuser = in->rx.user;
    }
}

template <class Top>
void sample(const Top& top, CoreOut* out) {
    out->axil.awready = top.s_axil_awready;
    out->axil.wready = top.s_axil_wready;
    out->axil.bvalid = top.s_axil_bvalid;
    out->axil.bresp = top.s_axil_bresp;
    out->axil.arready = top.s_axil_arready;
    out->axil.rvalid = top.s_axil_rvalid;
    out->axil.rdata = top.s_axil_rdata;
    out->axil.rresp = top.s_axil_rresp;
    out->axi.arvalid = top.m_axi_arvalid;
    if (top.m_axi_arvalid) {
        out->axi.arid = top.m_axi_arid;
        out->axi.araddr = top.m_axi_araddr;
        out->axi.arlen = top.m_axi_arlen;
        out->axi.arsize = top.m_axi_arsize;
        out->axi.arburst = top.m_axi_arburst;
    }
    out->axi.rready = top.m_axi_rready;
    out->axi.awvalid = top.m_axi_awvalid;
    if (top.m_axi_awvalid) {
        out->axi.awid = top.m_axi_awid;
        out->axi.awaddr = top.m_axi_awaddr;
        out->axi.awlen = top.m_axi_awlen;
        out->axi.awsize = top.m_axi_awsize;
        out->axi.awburst = top.m_axi_awburst;
    }
    out->axi.wvalid = top.m_axi_wvalid;
    if (top.m_axi_wvalid) {
        store(out->axi.wdata, top.m_axi_wdata);
        out->axi.wstrb = top.m_axi_wstrb;
        out->axi.wlast = top.m_axi_wlast;
    }
    out->axi.bready = top.m_axi_bready;
    out->irq_valid = top.irq_valid;
    out->irq_vector = top.irq_vector;
    out->rx_ready = top.s_axis_rx_tready;
    out->tx.valid = top.m_axis_tx_tvalid;
    if (top.m_axis_tx_tvalid) {
        store(out->tx.data, top.m_axis_tx_tdata);
        out->tx.keep = top.m_axis_tx_tkeep;
        out->tx.last = top.m_axis_tx_tlast;
        out->tx.user = top.m_axis_tx_tuser;
    }
}

struct PlainCore final : Core {
    Model<Vcore> model;

    void step(const CoreIn* in, CoreOut* out, uint64_t) override {
        drive(*model.top, in);
        model.eval(0);
        sample(*model.top, out);
        model.eval(1);
    }
};

#if VERBENA_FST
struct TracedCore final : Core {
    Model<Vcoretrace> model;
    VerilatedFstC trace;

    explicit TracedCore(const char* path) {
        model.context->traceEverOn(true);
        model.top->trace(&trace, 99);
        trace.open(path);
    }

    ~TracedCore() override { trace.close(); }

    void step(const CoreIn* in, CoreOut* out, uint64_t time_ns) override {
        drive(*model.top, in);
        model.eval(0);
        trace.dump(time_ns);
        sample(*model.top, out);
        model.eval(1);
        trace.dump(time_ns + 2);
    }
};
#endif

}  // namespace

extern "C" {

// Sizes and offsets, which the Rust side compares with its own.
void verbena_layout(uint32_t (*numbers)[4]) {
    const uint32_t ours[5][4] = {
        {sizeof(CoreIn), offsetof(CoreIn, axi), offsetof(CoreIn, rx), offsetof(CoreIn, rst)},
        {sizeof(CoreOut), offsetof(CoreOut, axi), offsetof(CoreOut, tx), offsetof(CoreOut, irq_valid)},
        {sizeof(AxiOut), offsetof(AxiOut, wstrb), offsetof(AxiOut, arvalid), offsetof(AxiOut, bready)},
        {sizeof(RxFrontIn), offsetof(RxFrontIn, cfg_mac), offsetof(RxFrontIn, cfg_ipv4), offsetof(RxFrontIn, rst)},
        {sizeof(RxFrontOut), offsetof(RxFrontOut, pkey), offsetof(RxFrontOut, rx_ready), offsetof(RxFrontOut, vlan)},
    };
    std::memcpy(numbers, ours, sizeof ours);
}

// Returns a core; with a path, one that dumps all signals to that FST file. Null: not built in.
void* verbena_core_create(const char* trace) {
    if (!trace) return static_cast<Core*>(new PlainCore);
#if VERBENA_FST
    return static_cast<Core*>(new TracedCore(trace));
#else
    return nullptr;
#endif
}

void verbena_core_destroy(void* core) { delete static_cast<Core*>(core); }

void verbena_core_step(void* core, const CoreIn* in, CoreOut* out, uint64_t time_ns) {
    static_cast<Core*>(core)->step(in, out, time_ns);
}

void* verbena_rx_front_create() { return new RxFront; }
void verbena_rx_front_destroy(void* model) { delete static_cast<RxFront*>(model); }

void verbena_rx_front_step(void* model, const RxFrontIn* in, RxFrontOut* out) {
    RxFront& front = *static_cast<RxFront*>(model);
    Vrxfront& top = *front.top;
    top.rst = in->rst;
    top.cfg_mac = in->cfg_mac;
    top.cfg_ipv4 = in->cfg_ipv4;
    std::memcpy(&top.cfg_ipv6, in->cfg_ipv6, sizeof in->cfg_ipv6);
    top.cfg_promiscuous = in->cfg_promiscuous;
    top.s_axis_rx_tvalid = in->rx.valid;
    if (in->rx.valid) {
        load(top.s_axis_rx_tdata, in->rx.data);
        top.s_axis_rx_tkeep = in->rx.keep;
        top.s_axis_rx_tlast = in->rx.last;
        top.s_axis_rx_tuser = in->rx.user;
    }

    front.eval(0);

    out->rx_ready = top.s_axis_rx_tready;
    out->valid = top.rep_valid;
    if (top.rep_valid) {
        out->verdict = top.rep_verdict;
        out->icrc_ok = top.rep_icrc_ok;
        out->is_roce = top.rep_is_roce;
        out->opcode = top.rep_opcode;
        out->se = top.rep_se;
        out->migreq = top.rep_migreq;
        out->pad_count = top.rep_pad;
        out->tver = top.rep_tver;
        out->pkey = top.rep_pkey;
        out->fecn = top.rep_fecn;
        out->becn = top.rep_becn;
        out->dqpn = top.rep_dqpn;
        out->ackreq = top.rep_ackreq;
        out->psn = top.rep_psn;
        out->has_reth = top.rep_has_reth;
        out->reth_va = top.rep_reth_va;
        out->reth_rkey = top.rep_reth_rkey;
        out->reth_len = top.rep_reth_len;
        out->has_aeth = top.rep_has_aeth;
        out->aeth_syndrome = top.rep_aeth_syndrome;
        out->aeth_msn = top.rep_aeth_msn;
        out->has_imm = top.rep_has_imm;
        out->imm = top.rep_imm;
        out->payload_len = top.rep_payload_len;
        out->ipv6 = top.rep_ipv6;
        out->vlan = top.rep_vlan;
        out->sport = top.rep_sport;
    }

    front.eval(1);
}

}  // extern "C"
