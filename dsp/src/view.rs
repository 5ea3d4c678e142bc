//! Views of row-major matrices: rows to read, and blocks that different tasks write side by side.
//!
//! A matrix of activations is cut by columns (strips) or rows among tasks. The cut is made here, once: [`Grid`] splits an
//! exclusive slice into disjoint blocks, and a [`Block`] can only reach its own rows and columns.

use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;

/// A row-major matrix to read: row r is `data[r·stride..]`.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Elements, at least `(rows − 1)·stride + width`.
    pub data: &'a [f32],
    /// Elements from one row to the next.
    pub stride: usize,
    /// Rows.
    pub rows: usize,
}

impl<'a> Rows<'a> {
    /// Rows of `stride` elements, as many as `data` holds.
    #[must_use]
    pub fn new(data: &'a [f32], stride: usize) -> Self {
        Self { data, stride, rows: data.len() / stride }
    }

    /// Row `row` from its first element to the end of its stride (or of the data).
    #[must_use]
    pub fn row(&self, row: usize) -> &'a [f32] {
        let first = row * self.stride;
        &self.data[first..self.data.len().min(first + self.stride)]
    }

    /// The columns from `first` on, all rows.
    #[must_use]
    pub fn from_column(&self, first: usize) -> Self {
        Self { data: &self.data[first..], ..*self }
    }

    /// A range of the rows.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        Self { data: &self.data[rows.start * self.stride..], stride: self.stride, rows: rows.len() }
    }
}

/// A row-major matrix that is about to be cut into disjoint blocks.
#[derive(Debug)]
pub struct Grid<'a> {
    base: NonNull<f32>,
    rows: usize,
    columns: usize,
    stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: a Grid is an exclusive slice; `block`'s contract keeps what threads reach through it disjoint.
unsafe impl Sync for Grid<'_> {}

impl<'a> Grid<'a> {
    /// A grid over `data` with rows of `stride` elements.
    #[must_use]
    pub fn new(data: &'a mut [f32], stride: usize) -> Self {
        let rows = data.len() / stride;
        Self { rows, columns: stride, stride, base: NonNull::from(data).cast(), owner: PhantomData }
    }

    /// The grid's columns `columns` alone.
    ///
    /// # Panics
    /// When they reach out of the grid.
    #[must_use]
    pub fn narrow(self, columns: Range<usize>) -> Self {
        assert!(columns.start <= columns.end && columns.end <= self.columns, "columns out of the grid");
        let first = if self.rows == 0 { 0 } else { columns.start };
        // SAFETY: `first` lies inside the first row.
        let base = unsafe { self.base.add(first) };
        Self { base, columns: columns.len(), ..self }
    }

    /// Rows of the grid.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the grid.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Elements from one row to the next.
    #[must_use]
    pub const fn stride(&self) -> usize {
        self.stride
    }

    /// Pointer to an element, for kernels that write single vectors; what keeps them apart is theirs to say.
    ///
    /// # Panics
    /// When the element lies out of the grid.
    #[must_use]
    #[inline(always)]
    pub fn pointer(&self, row: usize, column: usize) -> *mut f32 {
        assert!(row < self.rows && column < self.columns, "an element of the grid");
        // SAFETY: the element lies inside the slice by the assertion.
        unsafe { self.base.add(row * self.stride + column) }.as_ptr()
    }

    /// The whole grid as one block.
    #[must_use]
    pub const fn into_block(self) -> Block<'a> {
        let Self { base, rows, columns, stride, .. } = self;
        Block { base, rows, columns, stride, owner: PhantomData }
    }

    /// The block of these rows and columns.
    ///
    /// # Panics
    /// When the block reaches out of the grid.
    ///
    /// # Safety
    /// No two blocks that are alive at once overlap.
    #[must_use]
    pub unsafe fn block(&self, rows: Range<usize>, columns: Range<usize>) -> Block<'_> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows out of the grid");
        assert!(columns.start <= columns.end && columns.end <= self.columns, "columns out of the grid");
        let first = if rows.is_empty() { 0 } else { rows.start * self.stride + columns.start };
        // SAFETY: `first` lies inside the slice by the assertions.
        let base = unsafe { self.base.add(first) };
        Block { base, rows: rows.len(), columns: columns.len(), stride: self.stride, owner: PhantomData }
    }
}

/// A block of a grid that one task alone writes.
#[derive(Debug)]
pub struct Block<'a> {
    base: NonNull<f32>,
    rows: usize,
    columns: usize,
    stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: a block is exclusive access to its own elements, like the `&mut [f32]` it was cut from.
unsafe impl Send for Block<'_> {}

impl<'a> Block<'a> {
    /// A block over a whole slice with rows of `columns` elements.
    #[must_use]
    pub fn new(data: &'a mut [f32], columns: usize) -> Self {
        let rows = data.len() / columns;
        Self { base: NonNull::from(data).cast(), rows, columns, stride: columns, owner: PhantomData }
    }

    /// Rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Row `row` to read and write.
    ///
    /// # Panics
    /// Past the last row.
    #[must_use]
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row out of the block");
        // SAFETY: the row's columns lie inside the block, which is exclusive; the borrow of self keeps rows apart.
        unsafe { core::slice::from_raw_parts_mut(self.base.add(row * self.stride).as_ptr(), self.columns) }
    }

    /// These rows and columns of the block, borrowed.
    ///
    /// # Panics
    /// When they reach out of the block.
    #[must_use]
    pub fn part(&mut self, rows: Range<usize>, columns: Range<usize>) -> Block<'_> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows out of the block");
        assert!(columns.start <= columns.end && columns.end <= self.columns, "columns out of the block");
        let first = if rows.is_empty() { 0 } else { rows.start * self.stride + columns.start };
        // SAFETY: `first` lies inside the block by the assertions.
        let base = unsafe { self.base.add(first) };
        Block { base, rows: rows.len(), columns: columns.len(), stride: self.stride, owner: PhantomData }
    }

    /// Pointer to the first element, for kernels that keep several rows open at once.
    #[must_use]
    pub const fn as_ptr(&mut self) -> *mut f32 {
        self.base.as_ptr()
    }

    /// Elements from one row to the next.
    #[must_use]
    pub const fn stride(&self) -> usize {
        self.stride
    }
}
