// A skel of its own kind: it runs one case at a time on registers and memory that the caller gives, and gives them back.
//
// Methods: 0 open, 1 close; 4 run: one in-buffer, one out-buffer, both a state; 5 acquire the units: one in-buffer, a
// word of flags (1 VTCM and matrix unit, 2 its lock, 4 its power vote), no out-buffer. After method 5 cases run over VTCM.
//
// A state: 32 vectors, 4 vector predicates as bytes, 128 vectors of memory, then words: r0 to r15, p3:0, m0, m1, the number
// of the case, the packets that it took. A case is entered with r16 at the memory, may change r0 to r15, r28 excepted all
// that a call may, and returns with jumpr r31.
	.text
	.balign 32
	.globl estream_skel_handle_invoke
	.type estream_skel_handle_invoke,@function
estream_skel_handle_invoke:
	allocframe(#64)
	memd(r29+#0) = r17:16
	memd(r29+#8) = r19:18
	memd(r29+#16) = r21:20
	memd(r29+#24) = r23:22
	memd(r29+#32) = r25:24
	memd(r29+#40) = r27:26
	r4 = extractu(r2,#5,#24)
	p0 = cmp.eq(r4,#4)
	if (p0) jump:nt .Lrun
	p0 = cmp.eq(r4,#5)
	if (p0) jump:nt .Lunits
	p0 = cmp.eq(r4,#0)
	if (!p0) jump:nt .Lreturn
	r5:4 = combine(#0,#1)
	memd(r3+#16) = r5:4
.Lreturn:
	r0 = #0
.Lleave:
	r17:16 = memd(r29+#0)
	r19:18 = memd(r29+#8)
	r21:20 = memd(r29+#16)
	r23:22 = memd(r29+#24)
	r25:24 = memd(r29+#32)
	r27:26 = memd(r29+#40)
	dealloc_return

.Lrun:
	r16 = memw(r3+#0)
	r17 = memw(r3+#8)
	memw(r29+#56) = r17
	r18 = add(pc,##place@PCREL)
	r1 = memw(r18+#0)
	r18 = add(pc,##memory@PCREL)
	p0 = cmp.eq(r1,#0)
	if (!p0) r18 = r1
	r0 = add(r16,##4608)
	r1 = r18
	r2 = #128
	loop0(.Lfill,r2)
.Lfill:
	v0 = vmemu(r0++#1)
	{ vmem(r1++#1) = v0
	  nop }:endloop0
	r0 = add(r16,##4096)
	r1 = #-1
	v0 = vmemu(r0++#1)
	q0 = vand(v0,r1)
	v0 = vmemu(r0++#1)
	q1 = vand(v0,r1)
	v0 = vmemu(r0++#1)
	q2 = vand(v0,r1)
	v0 = vmemu(r0++#1)
	q3 = vand(v0,r1)
	r0 = r16
	.irp v, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
	v\v = vmemu(r0++#1)
	.endr
	r20 = add(r16,##20992)
	r0 = memw(r20+#64)
	p3:0 = r0
	r0 = memw(r20+#68)
	m0 = r0
	r0 = memw(r20+#72)
	m1 = r0
	r0 = memw(r20+#76)
	r1 = add(pc,##table@PCREL)
	r2 = memw(r1+r0<<#2)
	r28 = add(r1,r2)
	r16 = r18
	memw(r29+#60) = r18
	.irp r, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
	r\r = memw(r20+#4*\r)
	.endr
	// r21 = c20 and r22 = c20, the packets so far.
	.word 0x6a14c015
	callr r28
	.word 0x6a14c016
	r28 = memw(r29+#56)
	r28 = add(r28,##20992)
	.irp r, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
	memw(r28+#4*\r) = r\r
	.endr
	r0 = p3:0
	memw(r28+#64) = r0
	r22 = sub(r22,r21)
	memw(r28+#80) = r22
	r0 = memw(r29+#56)
	.irp v, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
	vmemu(r0++#1) = v\v
	.endr
	r1 = #-1
	.irp q, 0,1,2,3
	v0 = vand(q\q,r1)
	vmemu(r0++#1) = v0
	.endr
	r1 = memw(r29+#60)
	r2 = #128
	loop0(.Ldrain,r2)
.Ldrain:
	v0 = vmem(r1++#1)
	{ vmemu(r0++#1) = v0
	  nop }:endloop0
	jump .Lreturn

.Lunits:
	r16 = memw(r3+#0)
	r17 = memw(r16+#0)
	r18 = add(pc,##attributes@PCREL)
	p0 = tstbit(r17,#0)
	if (!p0) jump:nt .Lpower
	r0 = r18
	call compute_resource_attr_init
	r0 = r18
	r1 = ##262144
	r2 = #1
	call compute_resource_attr_set_vtcm_param
	r0 = r18
	r1 = #1
	call compute_resource_attr_set_hmx_param
	r0 = r18
	r1 = ##10000
	call compute_resource_acquire
	r19 = r0
	r0 = r18
	call compute_resource_attr_get_vtcm_ptr
	r1 = add(pc,##place@PCREL)
	memw(r1+#0) = r0
	p0 = tstbit(r17,#1)
	if (!p0) jump:nt .Lpower
	r0 = r19
	call compute_resource_hmx_lock
.Lpower:
	p0 = tstbit(r17,#2)
	if (!p0) jump:nt .Lreturn
	// HAP_power_set_HMX_v2, as the file's architecture has it: set_power = 1, power_up = 1.
	r1 = add(pc,##request@PCREL)
	r0 = #14
	memw(r1+#0) = r0
	r0 = #257
	memw(r1+#8) = r0
	r0 = #0
	call HAP_power_set
	jump .Lreturn

	.bss
	.balign 256
memory:
	.space 16384
attributes:
	.space 160
	.balign 8
request:
	.space 120
place:
	.space 4
	.text
