//! The HVX floating-point forms, as one table: qfloat, IEEE half and single, bfloat16, fp8.
//!
//! Opcodes are those of LLVM 22's assembler, derived by assembling each mnemonic with varied registers; the table test in
//! `tests/assembler.rs` does so again. The architecture column is the first for which LLVM takes the form; it does not say
//! that silicon of that version has it.

use super::{Form, Operation, Register, field};

/// What kind of register an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Scalar,
    Vector,
    Pair,
    Predicate,
}

/// The operands of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    destination: Kind,
    sources: [Option<Kind>; 2],
    accumulates: bool,
}

impl Shape {
    const fn new(destination: Kind, first: Kind, second: Option<Kind>, accumulates: bool) -> Self {
        Self { destination, sources: [Some(first), second], accumulates }
    }

    /// The bits that are neither operand nor parse bits.
    const fn mask(self) -> u32 {
        let destination = if matches!(self.destination, Kind::Predicate) { 3 } else { 31 };
        let second = if self.sources[1].is_some() { 31 << 16 } else { 0 };
        !(destination | 31 << 8 | second | 3 << 14)
    }
}

// Destination, underscore, sources; W is a pair, X a destination that is read too.
const V_V: Shape = Shape::new(Kind::Vector, Kind::Vector, None, false);
const V_W: Shape = Shape::new(Kind::Vector, Kind::Pair, None, false);
const V_VV: Shape = Shape::new(Kind::Vector, Kind::Vector, Some(Kind::Vector), false);
const V_VR: Shape = Shape::new(Kind::Vector, Kind::Vector, Some(Kind::Scalar), false);
const VX_VV: Shape = Shape::new(Kind::Vector, Kind::Vector, Some(Kind::Vector), true);
const VX_VR: Shape = Shape::new(Kind::Vector, Kind::Vector, Some(Kind::Scalar), true);
const W_V: Shape = Shape::new(Kind::Pair, Kind::Vector, None, false);
const W_VV: Shape = Shape::new(Kind::Pair, Kind::Vector, Some(Kind::Vector), false);
const WX_VV: Shape = Shape::new(Kind::Pair, Kind::Vector, Some(Kind::Vector), true);
const Q_VV: Shape = Shape::new(Kind::Predicate, Kind::Vector, Some(Kind::Vector), false);
const QX_VV: Shape = Shape::new(Kind::Predicate, Kind::Vector, Some(Kind::Vector), true);

struct Row {
    float: Float,
    opcode: u32,
    shape: Shape,
    architecture: u8,
    mnemonic: &'static str,
}

/// One line a form: name, opcode with registers and parse bits 0, operands, first architecture, spelling.
macro_rules! forms {
    ($($name:ident $opcode:literal $shape:ident $architecture:literal $mnemonic:literal;)*) => {
        /// An HVX floating-point instruction: operation, destination type, source types.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Float {
            $(#[doc = concat!("`", $mnemonic, "`")] $name,)*
        }

        impl Float {
            /// Every form, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }

        const ROWS: &[Row] = &[
            $(Row { float: Float::$name, opcode: $opcode, shape: $shape, architecture: $architecture, mnemonic: $mnemonic },)*
        ];
    };
}

forms! {
    MpyAccSfHfHf 0x1c40_2020 WX_VV 68 "Vxx32.sf+=vmpy(Vu32.hf,Vv32.hf)";
    MpyAccHfHfHf 0x1c40_2040 VX_VV 68 "Vx32.hf+=vmpy(Vu32.hf,Vv32.hf)";
    DmpyAccSfHfHf 0x1c40_2060 VX_VV 68 "Vx32.sf+=vdmpy(Vu32.hf,Vv32.hf)";
    FminHfHfHf 0x1c60_2000 V_VV 68 "Vd32.hf=vfmin(Vu32.hf,Vv32.hf)";
    FminSfSfSf 0x1c60_2020 V_VV 68 "Vd32.sf=vfmin(Vu32.sf,Vv32.sf)";
    FmaxHfHfHf 0x1c60_2040 V_VV 68 "Vd32.hf=vfmax(Vu32.hf,Vv32.hf)";
    FmaxSfSfSf 0x1c60_2060 V_VV 68 "Vd32.sf=vfmax(Vu32.sf,Vv32.sf)";
    GtOrSf 0x1c80_2030 QX_VV 68 "Qx4|=vcmp.gt(Vu32.sf,Vv32.sf)";
    GtOrHf 0x1c80_2034 QX_VV 68 "Qx4|=vcmp.gt(Vu32.hf,Vv32.hf)";
    GtSf 0x1c80_2070 Q_VV 68 "Qd4=vcmp.gt(Vu32.sf,Vv32.sf)";
    GtHf 0x1c80_2074 Q_VV 68 "Qd4=vcmp.gt(Vu32.hf,Vv32.hf)";
    GtAndSf 0x1c80_20c8 QX_VV 68 "Qx4&=vcmp.gt(Vu32.sf,Vv32.sf)";
    GtAndHf 0x1c80_20cc QX_VV 68 "Qx4&=vcmp.gt(Vu32.hf,Vv32.hf)";
    GtXorSf 0x1c80_20e8 QX_VV 68 "Qx4^=vcmp.gt(Vu32.sf,Vv32.sf)";
    GtXorHf 0x1c80_20ec QX_VV 68 "Qx4^=vcmp.gt(Vu32.hf,Vv32.hf)";
    SfFromQf32 0x1e04_2000 V_V 68 "Vd32.sf=Vu32.qf32";
    CvtHfUb 0x1e04_2020 W_V 68 "Vdd32.hf=vcvt(Vu32.ub)";
    CvtHfB 0x1e04_2040 W_V 68 "Vdd32.hf=vcvt(Vu32.b)";
    HfFromQf16 0x1e04_2060 V_V 68 "Vd32.hf=Vu32.qf16";
    CvtSfHf 0x1e04_2080 W_V 68 "Vdd32.sf=vcvt(Vu32.hf)";
    CvtHfUh 0x1e04_20a0 V_V 68 "Vd32.hf=vcvt(Vu32.uh)";
    HfFromQf32 0x1e04_20c0 V_W 68 "Vd32.hf=Vuu32.qf32";
    CvtHfH 0x1e04_20e0 V_V 68 "Vd32.hf=vcvt(Vu32.h)";
    CvtUhHf 0x1e05_2000 V_V 68 "Vd32.uh=vcvt(Vu32.hf)";
    CvtHHf 0x1e06_2000 V_V 68 "Vd32.h=vcvt(Vu32.hf)";
    FnegHfHf 0x1e06_2040 V_V 68 "Vd32.hf=vfneg(Vu32.hf)";
    FnegSfSf 0x1e06_2060 V_V 68 "Vd32.sf=vfneg(Vu32.sf)";
    AbsHfHf 0x1e06_2080 V_V 68 "Vd32.hf=vabs(Vu32.hf)";
    AbsSfSf 0x1e06_20a0 V_V 68 "Vd32.sf=vabs(Vu32.sf)";
    SubHfHfHf 0x1f60_2000 V_VV 68 "Vd32.hf=vsub(Vu32.hf,Vv32.hf)";
    CvtHfSfSf 0x1f60_2020 V_VV 68 "Vd32.hf=vcvt(Vu32.sf,Vv32.sf)";
    AddQf16Qf16Qf16 0x1f60_2040 V_VV 68 "Vd32.qf16=vadd(Vu32.qf16,Vv32.qf16)";
    AddQf16HfHf 0x1f60_2060 V_VV 68 "Vd32.qf16=vadd(Vu32.hf,Vv32.hf)";
    AddQf16Qf16Hf 0x1f60_2080 V_VV 68 "Vd32.qf16=vadd(Vu32.qf16,Vv32.hf)";
    SubQf16Qf16Qf16 0x1f60_20a0 V_VV 68 "Vd32.qf16=vsub(Vu32.qf16,Vv32.qf16)";
    SubQf16HfHf 0x1f60_20c0 V_VV 68 "Vd32.qf16=vsub(Vu32.hf,Vv32.hf)";
    SubQf16Qf16Hf 0x1f60_20e0 V_VV 68 "Vd32.qf16=vsub(Vu32.qf16,Vv32.hf)";
    MpyQf32Qf16Hf 0x1f80_2000 W_VV 68 "Vdd32.qf32=vmpy(Vu32.qf16,Vv32.hf)";
    MpySfSfSf 0x1f80_2020 V_VV 68 "Vd32.sf=vmpy(Vu32.sf,Vv32.sf)";
    MpySfHfHf 0x1f80_2040 W_VV 68 "Vdd32.sf=vmpy(Vu32.hf,Vv32.hf)";
    MpyHfHfHf 0x1f80_2060 V_VV 68 "Vd32.hf=vmpy(Vu32.hf,Vv32.hf)";
    AddSfHfHf 0x1f80_2080 W_VV 68 "Vdd32.sf=vadd(Vu32.hf,Vv32.hf)";
    SubSfHfHf 0x1f80_20a0 W_VV 68 "Vdd32.sf=vsub(Vu32.hf,Vv32.hf)";
    AddSfSfSf 0x1f80_20c0 V_VV 68 "Vd32.sf=vadd(Vu32.sf,Vv32.sf)";
    SubSfSfSf 0x1f80_20e0 V_VV 68 "Vd32.sf=vsub(Vu32.sf,Vv32.sf)";
    AddQf32Qf32Qf32 0x1fa0_2000 V_VV 68 "Vd32.qf32=vadd(Vu32.qf32,Vv32.qf32)";
    AddQf32SfSf 0x1fa0_2020 V_VV 68 "Vd32.qf32=vadd(Vu32.sf,Vv32.sf)";
    AddQf32Qf32Sf 0x1fa0_2040 V_VV 68 "Vd32.qf32=vadd(Vu32.qf32,Vv32.sf)";
    SubQf32Qf32Qf32 0x1fa0_2060 V_VV 68 "Vd32.qf32=vsub(Vu32.qf32,Vv32.qf32)";
    SubQf32SfSf 0x1fa0_2080 V_VV 68 "Vd32.qf32=vsub(Vu32.sf,Vv32.sf)";
    SubQf32Qf32Sf 0x1fa0_20a0 V_VV 68 "Vd32.qf32=vsub(Vu32.qf32,Vv32.sf)";
    DmpySfHfHf 0x1fa0_20c0 V_VV 68 "Vd32.sf=vdmpy(Vu32.hf,Vv32.hf)";
    AddHfHfHf 0x1fa0_20e0 V_VV 68 "Vd32.hf=vadd(Vu32.hf,Vv32.hf)";
    MaxSfSfSf 0x1fc0_2020 V_VV 68 "Vd32.sf=vmax(Vu32.sf,Vv32.sf)";
    MinSfSfSf 0x1fc0_2040 V_VV 68 "Vd32.sf=vmin(Vu32.sf,Vv32.sf)";
    MaxHfHfHf 0x1fc0_2060 V_VV 68 "Vd32.hf=vmax(Vu32.hf,Vv32.hf)";
    MinHfHfHf 0x1fc0_2080 V_VV 68 "Vd32.hf=vmin(Vu32.hf,Vv32.hf)";
    CvtUbHfHf 0x1fc0_20a0 V_VV 68 "Vd32.ub=vcvt(Vu32.hf,Vv32.hf)";
    CvtBHfHf 0x1fc0_20c0 V_VV 68 "Vd32.b=vcvt(Vu32.hf,Vv32.hf)";
    MpyQf32Qf32Qf32 0x1fe0_2000 V_VV 68 "Vd32.qf32=vmpy(Vu32.qf32,Vv32.qf32)";
    MpyQf32SfSf 0x1fe0_2020 V_VV 68 "Vd32.qf32=vmpy(Vu32.sf,Vv32.sf)";
    MpyQf16Qf16Qf16 0x1fe0_2060 V_VV 68 "Vd32.qf16=vmpy(Vu32.qf16,Vv32.qf16)";
    MpyQf16HfHf 0x1fe0_2080 V_VV 68 "Vd32.qf16=vmpy(Vu32.hf,Vv32.hf)";
    MpyQf16Qf16Hf 0x1fe0_20a0 V_VV 68 "Vd32.qf16=vmpy(Vu32.qf16,Vv32.hf)";
    MpyQf32Qf16Qf16 0x1fe0_20c0 W_VV 68 "Vdd32.qf32=vmpy(Vu32.qf16,Vv32.qf16)";
    MpyQf32HfHf 0x1fe0_20e0 W_VV 68 "Vdd32.qf32=vmpy(Vu32.hf,Vv32.hf)";
    GtOrBf 0x1c80_2038 QX_VV 73 "Qx4|=vcmp.gt(Vu32.bf,Vv32.bf)";
    GtBf 0x1c80_2078 Q_VV 73 "Qd4=vcmp.gt(Vu32.bf,Vv32.bf)";
    GtAndBf 0x1c80_20d0 QX_VV 73 "Qx4&=vcmp.gt(Vu32.bf,Vv32.bf)";
    GtXorBf 0x1c80_20f0 QX_VV 73 "Qx4^=vcmp.gt(Vu32.bf,Vv32.bf)";
    MpyAccSfBfBf 0x1d00_2000 WX_VV 73 "Vxx32.sf+=vmpy(Vu32.bf,Vv32.bf)";
    MinBfBfBf 0x1d40_2000 V_VV 73 "Vd32.bf=vmin(Vu32.bf,Vv32.bf)";
    CvtBfSfSf 0x1d40_2060 V_VV 73 "Vd32.bf=vcvt(Vu32.sf,Vv32.sf)";
    MpySfBfBf 0x1d40_2080 W_VV 73 "Vdd32.sf=vmpy(Vu32.bf,Vv32.bf)";
    SubSfBfBf 0x1d40_20a0 W_VV 73 "Vdd32.sf=vsub(Vu32.bf,Vv32.bf)";
    AddSfBfBf 0x1d40_20c0 W_VV 73 "Vdd32.sf=vadd(Vu32.bf,Vv32.bf)";
    MaxBfBfBf 0x1d40_20e0 V_VV 73 "Vd32.bf=vmax(Vu32.bf,Vv32.bf)";
    WFromSf 0x1e05_2020 V_V 73 "Vd32.w=Vu32.sf";
    HFromHf 0x1e05_2040 V_V 73 "Vd32.h=Vu32.hf";
    SfFromW 0x1e05_2060 V_V 73 "Vd32.sf=Vu32.w";
    HfFromH 0x1e05_2080 V_V 73 "Vd32.hf=Vu32.h";
    SetExtension 0x19c0_0060 V_VR 79 "Vd32.x=vsetqfext(Vu32,Rt32)";
    GetExtensionOr 0x19c0_00c0 VX_VR 79 "Vx32|=vgetqfext(Vu32.x,Rt32)";
    GetExtension 0x19c0_00e0 V_VR 79 "Vd32=vgetqfext(Vu32.x,Rt32)";
    MpyRtQf32SfSf 0x1a00_2020 V_VR 79 "Vd32.qf32=vmpy(Vu32.sf,Rt32.sf)";
    MpyRtQf16Qf16Hf 0x1a00_2040 V_VR 79 "Vd32.qf16=vmpy(Vu32.qf16,Rt32.hf)";
    MpyRtQf16HfHf 0x1a00_2060 V_VR 79 "Vd32.qf16=vmpy(Vu32.hf,Rt32.hf)";
    Cvt2BHfHf 0x1ac0_20c0 V_VV 79 "Vd32.b=vcvt2(Vu32.hf,Vv32.hf)";
    Cvt2UbHfHf 0x1ac0_20e0 V_VV 79 "Vd32.ub=vcvt2(Vu32.hf,Vv32.hf)";
    FminF8F8F8 0x1c60_2080 V_VV 79 "Vd32.f8=vfmin(Vu32.f8,Vv32.f8)";
    FmaxF8F8F8 0x1c60_20a0 V_VV 79 "Vd32.f8=vfmax(Vu32.f8,Vv32.f8)";
    AbsF8F8 0x1c66_20c0 V_V 79 "Vd32.f8=vabs(Vu32.f8)";
    FnegF8F8 0x1c66_20e0 V_V 79 "Vd32.f8=vfneg(Vu32.f8)";
    CvtHfF8 0x1e05_20a0 W_V 79 "Vdd32.hf=vcvt(Vu32.f8)";
    Cvt2HfB 0x1ed5_20c0 W_V 79 "Vdd32.hf=vcvt2(Vu32.b)";
    Cvt2HfUb 0x1ed5_20e0 W_V 79 "Vdd32.hf=vcvt2(Vu32.ub)";
    Merge 0x1f00_20e0 V_VV 79 "Vd32=vmerge(Vu32.x,Vv32.w)";
    AddHfF8F8 0x1f80_0080 W_VV 79 "Vdd32.hf=vadd(Vu32.f8,Vv32.f8)";
    SubHfF8F8 0x1f80_00a0 W_VV 79 "Vdd32.hf=vsub(Vu32.f8,Vv32.f8)";
    MpyHfF8F8 0x1f80_00c0 W_VV 79 "Vdd32.hf=vmpy(Vu32.f8,Vv32.f8)";
    MpyAccHfF8F8 0x1f80_00e0 WX_VV 79 "Vxx32.hf+=vmpy(Vu32.f8,Vv32.f8)";
    CvtF8HfHf 0x1fe0_2040 V_VV 79 "Vd32.f8=vcvt(Vu32.hf,Vv32.hf)";
    SubQf32SfQf32 0x1a00_2000 V_VV 81 "Vd32.qf32=vsub(Vu32.sf,Vv32.qf32)";
    SubQf16HfQf16 0x1a00_2080 V_VV 81 "Vd32.qf16=vsub(Vu32.hf,Vv32.qf16)";
    EqAndSf 0x1c80_200c QX_VV 81 "Qx4&=vcmp.eq(Vu32.sf,Vv32.sf)";
    EqAndHf 0x1c80_201c QX_VV 81 "Qx4&=vcmp.eq(Vu32.hf,Vv32.hf)";
    EqOrSf 0x1c80_204c QX_VV 81 "Qx4|=vcmp.eq(Vu32.sf,Vv32.sf)";
    EqOrHf 0x1c80_205c QX_VV 81 "Qx4|=vcmp.eq(Vu32.hf,Vv32.hf)";
    EqXorSf 0x1c80_208c QX_VV 81 "Qx4^=vcmp.eq(Vu32.sf,Vv32.sf)";
    EqXorHf 0x1c80_209c QX_VV 81 "Qx4^=vcmp.eq(Vu32.hf,Vv32.hf)";
    HFromHfRnd 0x1e06_20c0 V_V 81 "Vd32.h=Vu32.hf:rnd";
    BfFromQf32 0x1e06_20e0 V_W 81 "Vd32.bf=Vuu32.qf32";
    Ilog2WQf32 0x1e0c_2000 V_V 81 "Vd32.w=vilog2(Vu32.qf32)";
    Ilog2WQf16 0x1e0c_2020 V_V 81 "Vd32.w=vilog2(Vu32.qf16)";
    Ilog2WSf 0x1e0c_2040 V_V 81 "Vd32.w=vilog2(Vu32.sf)";
    Ilog2WHf 0x1e0c_2060 V_V 81 "Vd32.w=vilog2(Vu32.hf)";
    Qf16FromHf 0x1e0c_2080 V_V 81 "Vd32.qf16=Vu32.hf";
    Qf16FromF8 0x1e0c_20a0 W_V 81 "Vdd32.qf16=Vu32.f8";
    Qf16FromQf16 0x1e0c_20c0 V_V 81 "Vd32.qf16=Vu32.qf16";
    F8FromQf16 0x1e0c_20e0 V_V 81 "Vd32.f8=Vu32.qf16";
    Qf32FromSf 0x1e0d_20c0 V_V 81 "Vd32.qf32=Vu32.sf";
    Qf32FromQf32 0x1e0d_20e0 V_V 81 "Vd32.qf32=Vu32.qf32";
    NegQf32Sf 0x1e0e_2000 V_V 81 "Vd32.qf32=vneg(Vu32.sf)";
    NegQf32Qf32 0x1e0e_2020 V_V 81 "Vd32.qf32=vneg(Vu32.qf32)";
    NegQf16Hf 0x1e0e_2040 V_V 81 "Vd32.qf16=vneg(Vu32.hf)";
    NegQf16Qf16 0x1e0e_2060 V_V 81 "Vd32.qf16=vneg(Vu32.qf16)";
    AbsQf32Sf 0x1e0e_2080 V_V 81 "Vd32.qf32=vabs(Vu32.sf)";
    AbsQf32Qf32 0x1e0e_20a0 V_V 81 "Vd32.qf32=vabs(Vu32.qf32)";
    AbsQf16Hf 0x1e0e_20c0 V_V 81 "Vd32.qf16=vabs(Vu32.hf)";
    AbsQf16Qf16 0x1e0e_20e0 V_V 81 "Vd32.qf16=vabs(Vu32.qf16)";
    EqSf 0x1f80_000c Q_VV 81 "Qd4=vcmp.eq(Vu32.sf,Vv32.sf)";
    EqHf 0x1f80_001c Q_VV 81 "Qd4=vcmp.eq(Vu32.hf,Vv32.hf)";
}

impl Float {
    const fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// The instruction as the manuals spell it.
    #[must_use]
    pub const fn mnemonic(self) -> &'static str {
        self.row().mnemonic
    }

    /// The first architecture (68, 73, 79, 81) for which LLVM assembles it.
    #[must_use]
    pub const fn architecture(self) -> u8 {
        self.row().architecture
    }

    /// Whether [`model::float`](crate::model::float) serves it: all but the forms that move the extension bits which qfloat
    /// registers have from v79 on, and those of v81's that no public source defines (the integer logarithm, fp8 and qf16).
    #[must_use]
    pub const fn is_modelled(self) -> bool {
        !matches!(
            self,
            Self::GetExtension
                | Self::GetExtensionOr
                | Self::SetExtension
                | Self::Merge
                | Self::Ilog2WQf32
                | Self::Ilog2WQf16
                | Self::Ilog2WSf
                | Self::Ilog2WHf
                | Self::Qf16FromF8
                | Self::F8FromQf16
        )
    }
}

pub(super) fn identify(word: u32) -> Option<Form> {
    // All of them are HVX ALU words, 0x18…0x1f.
    if word >> 27 != 0b00011 {
        return None;
    }
    let row = ROWS.iter().find(|row| word & row.shape.mask() == row.opcode)?;
    let register = |kind, low_bit| {
        let number = field(word, low_bit);
        match kind {
            Kind::Scalar => Register::Scalar(number),
            Kind::Vector => Register::Vector(number),
            Kind::Pair => Register::Pair(number),
            Kind::Predicate => Register::Predicate(number & 3),
        }
    };
    let [first, second] = row.shape.sources;
    Some(Form {
        operation: Operation::Float(row.float),
        sources: [first.map(|kind| register(kind, 8)), second.map(|kind| register(kind, 16))],
        destination: Some(register(row.shape.destination, 0)),
        accumulates: row.shape.accumulates,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A form's own opcode is found as itself, whatever its registers, and no two forms overlap.
    #[test]
    fn forms_do_not_overlap() {
        for (index, row) in ROWS.iter().enumerate() {
            assert_eq!(row.float as usize, index);
            assert_eq!(row.opcode & !row.shape.mask(), 0, "{}", row.mnemonic);
            for other in &ROWS[..index] {
                let both = row.shape.mask() & other.shape.mask();
                assert_ne!(row.opcode & both, other.opcode & both, "{} and {}", row.mnemonic, other.mnemonic);
            }
        }
    }

    /// The table's columns say what the spelling says.
    #[test]
    fn shapes_follow_the_spelling() {
        for row in ROWS {
            let name = row.mnemonic;
            let (left, right) = name.split_once(['=', '+', '|', '&', '^']).expect("an assignment");
            let kind = |text: &str| match text.as_bytes() {
                [b'V', a, b, ..] if a == b => Kind::Pair,
                [b'V', ..] => Kind::Vector,
                [b'Q', ..] => Kind::Predicate,
                _ => Kind::Scalar,
            };
            assert_eq!(kind(left), row.shape.destination, "{name}");
            assert_eq!(left[1..].starts_with('x'), row.shape.accumulates, "{name}");
            assert_eq!(right.contains("Vuu"), row.shape.sources[0] == Some(Kind::Pair), "{name}");
            let second = if right.contains("Vv32") {
                Some(Kind::Vector)
            } else if right.contains("Rt32") {
                Some(Kind::Scalar)
            } else {
                None
            };
            assert_eq!(second, row.shape.sources[1], "{name}");
        }
    }

    /// The ten forms that the emulator runs silently as something else, as published words.
    #[test]
    fn silent_words_are_known() {
        for (word, float) in [
            (0x1e04_e100, Float::SfFromQf32),
            (0x1e06_e100, Float::CvtHHf),
            (0x1e04_e120, Float::CvtHfUb),
            (0x1e05_e100, Float::CvtUhHf),
            (0x1e06_e140, Float::FnegHfHf),
            (0x1e06_e160, Float::FnegSfSf),
            (0x1e05_e140, Float::HFromHf),
            (0x1e05_e180, Float::HfFromH),
            (0x1e05_e160, Float::SfFromW),
            (0x1e05_e120, Float::WFromSf),
        ] {
            assert_eq!(
                identify(word).map(|form| form.operation),
                Some(Operation::Float(float)),
                "{word:#010x}"
            );
        }
    }
}
