//! Operands at a vector's border, as the firmware has them.

/// Bytes of a vector.
const VECTOR: usize = 128;

/// Bytes at a vector's border.
pub struct Bytes {
    memory: Vec<u8>,
    count: usize,
}

impl Bytes {
    /// `count` bytes that are small positive numbers in whatever format they are read: 0x0101 is a half near 2^-16, and
    /// no kernel's path depends on more than that nothing saturates.
    pub fn small(count: usize) -> Self {
        Self { memory: vec![0x01; count + VECTOR], count }
    }

    /// The bytes.
    pub fn get(&self) -> &[u8] {
        let from = self.memory.as_ptr().align_offset(VECTOR);
        &self.memory[from..from + self.count]
    }
}

/// Floats at a vector's border.
pub struct Floats {
    memory: Vec<f32>,
    count: usize,
}

impl Floats {
    /// `count` times `value`.
    pub fn all(value: f32, count: usize) -> Self {
        Self { memory: vec![value; count + VECTOR / 4], count }
    }

    fn from(&self) -> usize {
        self.memory.as_ptr().align_offset(VECTOR)
    }

    /// The floats.
    pub fn get(&self) -> &[f32] {
        &self.memory[self.from()..][..self.count]
    }

    /// The floats, to be written.
    pub fn get_mut(&mut self) -> &mut [f32] {
        let from = self.from();
        &mut self.memory[from..from + self.count]
    }
}
