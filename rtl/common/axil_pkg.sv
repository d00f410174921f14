// The register bus inside a core: AXI4-Lite with 23 bits of byte address and 32 of data, a structure each way.
package axil_pkg;
  localparam int unsigned AddrWidth = 23;
  localparam int unsigned DataWidth = 32;

  typedef enum logic [1:0] {
    Okay       = 2'b00,
    SlaveError = 2'b10
  } resp_e;

  // From the host.
  typedef struct packed {
    logic                   aw_valid;
    logic [AddrWidth-1:0]   aw_addr;
    logic                   w_valid;
    logic [DataWidth-1:0]   w_data;
    logic [DataWidth/8-1:0] w_strb;
    logic                   b_ready;
    logic                   ar_valid;
    logic [AddrWidth-1:0]   ar_addr;
    logic                   r_ready;
  } axil_req_t;

  // To the host.
  typedef struct packed {
    logic                 aw_ready;
    logic                 w_ready;
    logic                 b_valid;
    resp_e                b_resp;
    logic                 ar_ready;
    logic                 r_valid;
    logic [DataWidth-1:0] r_data;
    resp_e                r_resp;
  } axil_rsp_t;
endpackage
