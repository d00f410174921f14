//! Computes a lower limit for the core: the instructions that no AVX-512 kernel can do without. Each instruction is
//! independent of all others. Loads, stores, carries, reductions and the costs of a packet are left out.
//!
//! For 64 bytes the limit counts:
//! - AES: one `vaesenc` per round.
//! - GHASH: three products (Karatsuba).
//! - SHA-1, SHA-256 and ChaCha20: a sixteenth of what sixteen lanes take, with one `vpternlogd` per logical function.
//! - Poly1305: nine products of IFMA.
//!
//! Rotations, `vpternlogd` and additions are timed together because they share ports. DES has no such bound: it
//! depends on the circuits of the S-boxes.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
#[cfg(target_arch = "x86_64")]
use std::time::Instant;

#[cfg(target_arch = "x86_64")]
use esplanade_testkit::clock::cycle_ns;

/// Times the instructions, which are lines of assembly, and returns the core cycles of one round of them.
#[cfg(target_arch = "x86_64")]
macro_rules! cycles {
    ($($line:expr),+ $(,)?) => {{
        const LOOPS: u64 = 10_000;
        const UNROLLED: u64 = 4;
        let mut least = f64::MAX;
        for _ in 0..15 {
            let before = cycle_ns();
            let start = Instant::now();
            // SAFETY: the caller checked that the machine has the instructions; only the named registers change.
            unsafe {
                asm!(
                    "2:", ".rept 4", $($line),+ , ".endr", "dec {loops}", "jnz 2b",
                    loops = inout(reg) LOOPS => _,
                    out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _,
                    out("zmm6") _, out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                    out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
                    options(nomem, nostack)
                );
            }
            let spent = start.elapsed().as_nanos() as f64;
            let cycle = (before + cycle_ns()) / 2.0;
            least = least.min(spent / cycle / (LOOPS * UNROLLED) as f64);
        }
        least
    }};
}

/// Repeats one instruction. Results go nowhere, so that no instruction waits.
#[cfg(target_arch = "x86_64")]
macro_rules! some {
    (aes $n:literal) => {
        concat!(".rept ", $n, "\nvaesenc zmm0, zmm15, zmm14\n.endr")
    };
    (product $n:literal) => {
        concat!(".rept ", $n, "\nvpclmulqdq zmm0, zmm15, zmm14, 0\n.endr")
    };
    (rotate $n:literal) => {
        concat!(".rept ", $n, "\nvprold zmm0, zmm15, 5\n.endr")
    };
    (simple $n:literal) => {
        concat!(".rept ", $n, "\nvpaddd zmm0, zmm15, zmm14\n.endr")
    };
    // These instructions read their own result, so they form three chains.
    (ternary 3 * $n:literal) => {
        concat!(
            ".rept ",
            $n,
            "\nvpternlogd zmm1, zmm15, zmm14, 0x96\nvpternlogd zmm2, zmm15, zmm14, 0x96\n\
             vpternlogd zmm3, zmm15, zmm14, 0x96\n.endr"
        )
    };
    (ifma 9) => {
        "vpmadd52luq zmm4, zmm15, zmm14\nvpmadd52luq zmm5, zmm15, zmm14\nvpmadd52luq zmm6, zmm15, zmm14\n\
         vpmadd52luq zmm7, zmm15, zmm14\nvpmadd52luq zmm8, zmm15, zmm14\nvpmadd52luq zmm9, zmm15, zmm14\n\
         vpmadd52luq zmm10, zmm15, zmm14\nvpmadd52luq zmm11, zmm15, zmm14\nvpmadd52luq zmm12, zmm15, zmm14"
    };
}

/// Returns the core cycles per byte of each suite, or nothing without AVX-512.
#[cfg(target_arch = "x86_64")]
pub fn cycles_per_byte() -> Vec<(&'static str, f64)> {
    let known = is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512ifma");
    if !known {
        return Vec::new();
    }
    let for_64_bytes = [
        ("AES_GCM_16_128", cycles!(some!(aes 10), some!(product 3))),
        ("AES_GCM_16_256", cycles!(some!(aes 14), some!(product 3))),
        (
            "AES_CBC_128/HMAC_SHA1_96",
            cycles!(
                some!(aes 10),
                some!(rotate 14),
                some!(ternary 3 * 3),
                some!(simple 24)
            ),
        ),
        (
            "AES_CBC_128/HMAC_SHA2_256_128",
            cycles!(
                some!(aes 10),
                some!(rotate 42),
                some!(ternary 3 * 7),
                some!(simple 37)
            ),
        ),
        (
            "AES_CTR_256/HMAC_SHA2_256_128",
            cycles!(
                some!(aes 14),
                some!(rotate 42),
                some!(ternary 3 * 7),
                some!(simple 37)
            ),
        ),
        (
            "CHACHA20_POLY1305",
            cycles!(some!(ifma 9), some!(rotate 20), some!(simple 42)),
        ),
    ];
    for_64_bytes
        .map(|(suite, cycles)| (suite, cycles / 64.0))
        .to_vec()
}

#[cfg(not(target_arch = "x86_64"))]
pub fn cycles_per_byte() -> Vec<(&'static str, f64)> {
    Vec::new()
}
