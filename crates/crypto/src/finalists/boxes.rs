//! S-boxes of four bits as sums of products of their input bits (their algebraic normal forms). Each bit is a plane: the
//! same bit of many words, so one formula works on as many words as a plane has bits, and looks nothing up.

use std::ops::{BitAnd, BitXor, Not};

/// Words of bits that sums and products are made of.
pub(super) trait Bits:
    Copy + BitAnd<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
}

impl<T: Copy + BitAnd<Output = T> + BitXor<Output = T> + Not<Output = T>> Bits for T {}

/// Defines S-boxes with the table of each, for the test.
macro_rules! boxes {
    (
        [$a:ident $b:ident $c:ident $d:ident $ab:ident $ac:ident $ad:ident $bc:ident $bd:ident $cd:ident]
        [$abc:ident $abd:ident $acd:ident $bcd:ident]
        $($name:ident $table:literal [$($sum:expr),* $(,)?])*
    ) => {
        $(
            #[inline(always)]
            #[allow(unused_variables, reason = "no box has all products")]
            pub(super) fn $name<P: Bits>([$a, $b, $c, $d]: [P; 4]) -> [P; 4] {
                let ($ab, $ac, $ad) = ($a & $b, $a & $c, $a & $d);
                let ($bc, $bd, $cd) = ($b & $c, $b & $d, $c & $d);
                let ($abc, $abd, $acd, $bcd) = ($ab & $c, $ab & $d, $ac & $d, $bc & $d);
                [$($sum),*]
            }
        )*

        #[cfg(feature = "generators")]
        type Box4 = fn([u16; 4]) -> [u16; 4];

        #[cfg(feature = "generators")]
        pub const TABLES: &[(&str, Box4)] = &[$(($table, $name),)*];
    };
}

boxes! {
    [a b c d ab ac ad bc bd cd]
    [abc abd acd bcd]

    serpent_0 "38f1a65bed42709c" [
        !(a ^ ab ^ c ^ ac ^ bc ^ abc ^ d ^ acd ^ bcd),
        !(a ^ ac ^ bc ^ abc ^ bd ^ acd ^ bcd),
        b ^ ab ^ ac ^ abc ^ d ^ bd ^ bcd,
        a ^ b ^ c ^ d ^ ad,
    ]

    serpent_1 "fc27905a1be86d34" [
        !(a ^ b ^ bc ^ ad ^ cd ^ acd ^ bcd),
        !(a ^ ab ^ c ^ ac ^ d ^ bd ^ abd ^ acd ^ bcd),
        !(b ^ ab ^ c ^ d),
        !(b ^ ac ^ d ^ ad ^ abd ^ acd ^ bcd),
    ]

    serpent_2 "86793cafd1e40b52" [
        b ^ c ^ ac ^ d,
        a ^ b ^ c ^ bc ^ abc ^ ad ^ abd ^ cd ^ acd,
        a ^ b ^ bc ^ d ^ bd ^ abd ^ cd ^ acd,
        !(a ^ b ^ c ^ abc ^ bd),
    ]

    serpent_3 "0fb8c963d124a75e" [
        a ^ b ^ bc ^ d ^ ad ^ cd ^ acd ^ bcd,
        a ^ b ^ ac ^ ad ^ abd ^ cd ^ acd,
        a ^ ab ^ c ^ abc ^ d ^ bd ^ abd,
        a ^ b ^ ab ^ c ^ ac ^ abc ^ d ^ cd ^ acd,
    ]

    serpent_4 "1f83c0b6254a9e7d" [
        !(b ^ ab ^ c ^ d ^ ad ^ bd),
        a ^ ac ^ bc ^ d ^ bd ^ cd ^ acd ^ bcd,
        a ^ ab ^ c ^ bc ^ abc ^ bd ^ abd ^ cd ^ bcd,
        a ^ b ^ c ^ bc ^ ad ^ bd ^ abd,
    ]

    serpent_5 "f52b4a9c03e8d671" [
        !(b ^ ab ^ c ^ d ^ ad ^ bd),
        !(a ^ ab ^ c ^ d ^ bd ^ abd ^ cd),
        !(b ^ ac ^ d ^ abd ^ cd ^ acd ^ bcd),
        !(a ^ b ^ c ^ abc ^ d ^ ad ^ acd),
    ]

    serpent_6 "72c5846be91fd3a0" [
        !(a ^ b ^ c ^ ac ^ bc ^ abc ^ d ^ abd ^ bcd),
        !(b ^ c ^ ad),
        !(a ^ ab ^ c ^ bc ^ abc ^ bd ^ abd ^ cd ^ bcd),
        b ^ ab ^ c ^ ac ^ abc ^ d ^ cd ^ bcd,
    ]

    serpent_7 "1df0e82b74ca9356" [
        !(ab ^ c ^ ad ^ bd ^ cd ^ acd ^ bcd),
        b ^ ab ^ c ^ ac ^ bc ^ d ^ ad ^ abd ^ acd,
        a ^ b ^ c ^ abc ^ d ^ ad ^ bd ^ abd ^ bcd,
        a ^ b ^ c ^ ac ^ abc ^ ad,
    ]

    serpent_inverse_0 "d3b0a65c1e47f982" [
        !(ab ^ c ^ bc ^ ad ^ bd ^ abd ^ cd ^ acd ^ bcd),
        a ^ b ^ c ^ ac ^ bd ^ acd ^ bcd,
        !(a ^ b ^ ab ^ c ^ d),
        !(a ^ bc ^ d ^ abd ^ cd ^ acd ^ bcd),
    ]

    serpent_inverse_1 "582ef6c3b4791da0" [
        !(a ^ b ^ ab ^ abc ^ bd ^ acd ^ bcd),
        b ^ c ^ abc ^ d ^ ad ^ bd ^ acd ^ bcd,
        !(a ^ b ^ ac ^ bc ^ abc ^ d ^ acd),
        a ^ c ^ d ^ bd,
    ]

    serpent_inverse_2 "c9f4be12036d58a7" [
        a ^ b ^ c ^ bc ^ bd,
        b ^ ab ^ c ^ ad ^ abd ^ cd ^ acd,
        !(a ^ ab ^ c ^ d ^ ad ^ bd ^ abd ^ acd),
        !(ab ^ bc ^ abc ^ d ^ acd),
    ]

    serpent_inverse_3 "09a7be6d35c248f1" [
        a ^ c ^ bc ^ d ^ ad ^ bd ^ bcd,
        b ^ c ^ bc ^ abc ^ d ^ ad ^ acd ^ bcd,
        ab ^ ac ^ bc ^ ad ^ bd ^ abd ^ cd ^ acd,
        a ^ b ^ c ^ ac ^ abc ^ ad ^ abd ^ cd,
    ]

    serpent_inverse_4 "5083a97e2cb64fd1" [
        !(a ^ b ^ c ^ d ^ ad ^ abd ^ cd ^ acd),
        ab ^ c ^ ac ^ d ^ ad ^ acd,
        !(a ^ b ^ ab ^ c ^ ac ^ abc ^ d ^ bd ^ abd),
        b ^ ab ^ c ^ ad ^ abd ^ cd,
    ]

    serpent_inverse_5 "8f2941deb6537ca0" [
        a ^ bc ^ d ^ abd,
        a ^ b ^ ac ^ bc ^ abc ^ d ^ ad ^ abd,
        a ^ ab ^ c ^ bd ^ abd ^ acd,
        !(b ^ ab ^ c ^ abc ^ ad),
    ]

    serpent_inverse_6 "fa1d536049e72c8b" [
        !(a ^ ab ^ ac ^ bc ^ abc ^ d ^ abd ^ bcd),
        !(b ^ c ^ ac ^ d),
        !(a ^ b ^ bc ^ bd ^ abd ^ cd ^ bcd),
        !(b ^ ab ^ c ^ bc ^ abc ^ d ^ ad ^ abd ^ cd ^ bcd),
    ]

    serpent_inverse_7 "306d9ef85cb7a142" [
        !(a ^ b ^ bc ^ bd ^ abd ^ cd ^ bcd),
        !(a ^ c ^ bc ^ d ^ ad ^ bd ^ acd ^ bcd),
        b ^ ac ^ d ^ abd ^ cd ^ acd,
        ab ^ c ^ abc ^ ad ^ bd ^ abd,
    ]

    twofish_q0_t0 "817d6f320b59eca4" [
        a ^ b ^ ab ^ abc ^ acd ^ bcd,
        b ^ ab ^ c ^ bc ^ abc ^ ad ^ bd ^ bcd,
        b ^ c ^ abd,
        !(a ^ b ^ c ^ bc ^ abc ^ d ^ bd ^ acd ^ bcd),
    ]

    twofish_q0_t1 "ecb81235f4a6709d" [
        b ^ ab ^ c ^ ac ^ bc ^ d ^ ad ^ cd ^ acd,
        !(a ^ c ^ bc ^ abd ^ cd),
        !(b ^ c ^ bc ^ abc ^ abd ^ cd ^ acd ^ bcd),
        !(c ^ ad ^ acd ^ bcd),
    ]

    twofish_q0_t2 "ba5e6d90c8f32471" [
        !(a ^ c ^ bc ^ d ^ ad ^ bd ^ cd ^ bcd),
        !(b ^ ab ^ ac ^ d ^ abd ^ cd ^ bcd),
        b ^ c ^ d ^ ad ^ bd ^ bcd,
        !(b ^ ab ^ c ^ ac ^ abc ^ bd ^ acd),
    ]

    twofish_q0_t3 "d7f4126e9b3085ca" [
        !(ab ^ ac ^ bc ^ cd ^ bcd),
        a ^ b ^ abc ^ acd ^ bcd,
        !(c ^ bc ^ d ^ cd ^ acd),
        !(a ^ c ^ ac ^ abc ^ ad ^ bd ^ cd ^ bcd),
    ]

    twofish_q1_t0 "28bdf76e31940ac5" [
        b ^ c ^ d ^ bd ^ abd,
        !(a ^ ac ^ bd ^ abd ^ cd ^ acd ^ bcd),
        ab ^ c ^ abc ^ cd ^ bcd,
        a ^ b ^ ab ^ c ^ abc ^ ad ^ cd ^ acd,
    ]

    twofish_q1_t1 "1e2b4c376da5f908" [
        !(a ^ b ^ c ^ ac ^ d ^ bd ^ bcd),
        a ^ b ^ ab ^ ac ^ abc ^ d ^ bd ^ abd ^ acd ^ bcd,
        a ^ ab ^ c ^ ac ^ bc ^ d ^ ad ^ bd ^ cd ^ bcd,
        a ^ abc ^ bd ^ cd ^ acd,
    ]

    twofish_q1_t2 "4c75169a0ed82b3f" [
        b ^ c ^ ac ^ bc ^ abd ^ cd ^ bcd,
        b ^ ab ^ ac ^ bc ^ abc ^ ad ^ bd ^ cd ^ bcd,
        !(c ^ ac ^ abc ^ d ^ ad ^ bd ^ cd ^ bcd),
        a ^ ab ^ ac ^ bc ^ abc ^ bd ^ acd,
    ]

    twofish_q1_t3 "b951c3de647f208a" [
        !(c ^ ac ^ bc ^ d ^ bd ^ cd ^ acd),
        !(a ^ b ^ ab ^ c ^ bc ^ abc ^ bd ^ cd),
        b ^ ab ^ c ^ ac ^ bc ^ d ^ bd ^ abd ^ acd ^ bcd,
        !(b ^ ac ^ bc ^ abc ^ d ^ bd ^ abd ^ acd),
    ]
}
