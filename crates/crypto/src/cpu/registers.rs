//! Clears the vector registers, in which kernels leave keys and plaintext.

use super::Tier;

/// Zeroes every vector register that the tier's kernels use.
///
/// # Safety
/// The machine has the tier.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn zero(tier: Tier) {
    match tier {
        Tier::Portable => {}
        // SAFETY: the tier has AVX.
        Tier::AesNi => unsafe { zero_low() },
        // SAFETY: the tier has AVX-512.
        Tier::Avx512 => unsafe {
            zero_low();
            zero_high();
        },
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn zero(_: Tier) {}

/// Zeroes zmm0 to zmm15 in full width.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn zero_low() {
    // SAFETY: the instruction changes only the registers that the block names.
    unsafe {
        std::arch::asm!(
            "vzeroall",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Zeroes zmm16 to zmm31.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn zero_high() {
    macro_rules! zero {
        ($($register:tt)*) => {
            // SAFETY: the instructions change only the registers that the block names.
            unsafe {
                std::arch::asm!(
                    $(concat!("vpxord ", $register, ", ", $register, ", ", $register),)*
                    $(out($register) _,)*
                    options(nomem, nostack, preserves_flags)
                );
            }
        };
    }
    zero!(
        "zmm16" "zmm17" "zmm18" "zmm19" "zmm20" "zmm21" "zmm22" "zmm23"
        "zmm24" "zmm25" "zmm26" "zmm27" "zmm28" "zmm29" "zmm30" "zmm31"
    );
}
