"""The LLVM IR that reads one argument: exact types only, and the same answers as ``devices.arguments`` gives.

Each function takes the argument and where its bytes go, and tells whether it took it. They are compiled once; the code
of a layout calls them.
"""

from __future__ import annotations

import struct

from cujit.devices.arguments.packer import OVERFLOW

__all__ = ["readers_text"]

_TEXT = """
; An exact int that fits 64 bits without a sign.
define internal i1 @unsigned(ptr %value, ptr %out) {
  %over.at = alloca i32
  %number = call i64 @PyLong_AsLongLongAndOverflow(ptr %value, ptr %over.at)
  %over = load i32, ptr %over.at
  %fits = icmp eq i32 %over, 0
  br i1 %fits, label %sign, label %large
sign:
  store i64 %number, ptr %out
  %positive = icmp sge i64 %number, 0
  ret i1 %positive
large:
  %above = icmp sgt i32 %over, 0
  br i1 %above, label %wide, label %no
wide:
  %word = call i64 @PyLong_AsUnsignedLongLong(ptr %value)
  store i64 %word, ptr %out
  %all = icmp eq i64 %word, -1
  br i1 %all, label %ask, label %yes
ask:
  %error = call ptr @PyErr_Occurred()
  %none = icmp eq ptr %error, null
  br i1 %none, label %yes, label %forget
forget:
  call void @PyErr_Clear()
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; The attribute of an object, an exact int that is an address.
define internal i1 @attribute(ptr %value, i64 %offset, ptr %out) {
  %at = getelementptr i8, ptr %value, i64 %offset
  %number = load ptr, ptr %at
  %missing = icmp eq ptr %number, null
  br i1 %missing, label %no, label %look
look:
  %type.at = getelementptr i8, ptr %number, i64 #type
  %type = load ptr, ptr %type.at
  %is.int = icmp eq ptr %type, $int
  br i1 %is.int, label %yes, label %no
yes:
  %fits = call i1 @unsigned(ptr %number, ptr %out)
  ret i1 %fits
no:
  ret i1 false
}

; One of our arrays: on this device, of the dtype that was found right, and open.
define internal i1 @array(ptr %value, ptr %state, i64 %index, ptr %out) {
  %device.at = getelementptr i8, ptr %value, i64 #array.device
  %device = load ptr, ptr %device.at
  %mine.at = getelementptr i8, ptr %state, i64 #state.device
  %mine = load ptr, ptr %mine.at
  %here = icmp eq ptr %device, %mine
  br i1 %here, label %elements, label %no
elements:
  %dtype.at = getelementptr i8, ptr %value, i64 #array.dtype
  %dtype = load ptr, ptr %dtype.at
  %known.at = getelementptr i8, ptr %state, i64 #state.known
  %known = load ptr, ptr %known.at
  %right.at = getelementptr ptr, ptr %known, i64 %index
  %right = load ptr, ptr %right.at
  %fits = icmp eq ptr %dtype, %right
  br i1 %fits, label %memory, label %no
memory:
  %allocation.at = getelementptr i8, ptr %value, i64 #array.allocation
  %allocation = load ptr, ptr %allocation.at
  %closed = icmp eq ptr %allocation, $None
  %deleted = icmp eq ptr %allocation, null
  %gone = or i1 %closed, %deleted
  br i1 %gone, label %no, label %size
size:
  %nbytes.at = getelementptr i8, ptr %value, i64 #array.nbytes
  %nbytes = load ptr, ptr %nbytes.at
  %empty = icmp eq ptr %nbytes, $zero
  br i1 %empty, label %null, label %full
null:
  store i64 0, ptr %out
  ret i1 true
full:
  %found = call i1 @attribute(ptr %value, i64 #array.address, ptr %out)
  ret i1 %found
no:
  ret i1 false
}

; Whatever can stand for a pointer.
define i1 @pointer(ptr %value, ptr %state, i64 %index, ptr %out) {
  %type.at = getelementptr i8, ptr %value, i64 #type
  %type = load ptr, ptr %type.at
  %is.array = icmp eq ptr %type, $DeviceArray
  br i1 %is.array, label %ours, label %other
ours:
  %mine = call i1 @array(ptr %value, ptr %state, i64 %index, ptr %out)
  ret i1 %mine
other:
  %is.none = icmp eq ptr %value, $None
  br i1 %is.none, label %null, label %more
null:
  store i64 0, ptr %out
  ret i1 true
more:
  %is.pointer = icmp eq ptr %type, $Pointer
  br i1 %is.pointer, label %said, label %no
said:
  %address = call i1 @attribute(ptr %value, i64 #pointer.address, ptr %out)
  ret i1 %address
no:
  %interface.at = getelementptr i8, ptr %state, i64 #state.tensors
  %interface = load ptr, ptr %interface.at
  %no.torch = icmp eq ptr %interface, null
  br i1 %no.torch, label %next, label %torch
torch:
  %read.at = getelementptr i8, ptr %interface, i64 #tensors.read
  %read = load ptr, ptr %read.at
  %tensor = call i1 %read(ptr %value, ptr %type, ptr %state, i64 %index, ptr %out)
  br i1 %tensor, label %yes, label %next
next:
  %arrays.at = getelementptr i8, ptr %state, i64 #state.cupy
  %arrays = load ptr, ptr %arrays.at
  %no.cupy = icmp eq ptr %arrays, null
  br i1 %no.cupy, label %none, label %cupy
cupy:
  %look.at = getelementptr i8, ptr %arrays, i64 #cupy.read
  %look = load ptr, ptr %look.at
  %array = call i1 %look(ptr %value, ptr %type, ptr %state, i64 %index, ptr %out)
  ret i1 %array
yes:
  ret i1 true
none:
  ret i1 false
}

; A real number: an exact float, or an exact int that rounds to one.
define internal i1 @real(ptr %value, ptr %out) {
  %type.at = getelementptr i8, ptr %value, i64 #type
  %type = load ptr, ptr %type.at
  %is.float = icmp eq ptr %type, $float
  br i1 %is.float, label %plain, label %other
plain:
  %number = call double @PyFloat_AsDouble(ptr %value)
  store double %number, ptr %out
  ret i1 true
other:
  %is.int = icmp eq ptr %type, $int
  br i1 %is.int, label %convert, label %no
convert:
  %rounded = call double @PyLong_AsDouble(ptr %value)
  store double %rounded, ptr %out
  %odd = fcmp oeq double %rounded, -1.0
  br i1 %odd, label %ask, label %yes
ask:
  %error = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %yes, label %forget
forget:
  call void @PyErr_Clear()
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Let the reader of Python take an argument, or raise: its bytes go to the buffer.
define i1 @ask(ptr %state, i64 %index, ptr %value, ptr %to, i64 %size) {
  %argument = alloca ptr
  store ptr %value, ptr %argument
  %readers.at = getelementptr i8, ptr %state, i64 #state.readers
  %readers = load ptr, ptr %readers.at
  %reader.at = getelementptr ptr, ptr %readers, i64 %index
  %reader = load ptr, ptr %reader.at
  %bytes = call ptr @PyObject_VectorcallDict(ptr %reader, ptr %argument, i64 1, ptr null)
  %raised = icmp eq ptr %bytes, null
  br i1 %raised, label %no, label %copy
copy:
  %data = call ptr @PyBytes_AsString(ptr %bytes)
  %wrong = icmp eq ptr %data, null
  br i1 %wrong, label %drop, label %take
take:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %data, i64 %size, i1 false)
  call void @Py_DecRef(ptr %bytes)
  ret i1 true
drop:
  call void @Py_DecRef(ptr %bytes)
  br label %no
no:
  ret i1 false
}

define i1 @double(ptr %value, ptr %out) {
  %good = call i1 @real(ptr %value, ptr %out)
  ret i1 %good
}

; A number that a float holds without becoming infinite.
define i1 @single(ptr %value, ptr %out) {
  %wide.at = alloca double
  %good = call i1 @real(ptr %value, ptr %wide.at)
  br i1 %good, label %look, label %no
look:
  %wide = load double, ptr %wide.at
  %size = call double @llvm.fabs.f64(double %wide)
  %large = fcmp oge double %size, ~overflow
  %finite = fcmp one double %size, ~infinity
  %over = and i1 %large, %finite
  br i1 %over, label %no, label %yes
yes:
  %single = fptrunc double %wide to float
  store float %single, ptr %out
  ret i1 true
no:
  ret i1 false
}

define i1 @bool(ptr %value, ptr %out) {
  %true = icmp eq ptr %value, $True
  %false = icmp eq ptr %value, $False
  %either = or i1 %true, %false
  br i1 %either, label %yes, label %no
yes:
  %byte = zext i1 %true to i8
  store i8 %byte, ptr %out
  ret i1 true
no:
  ret i1 false
}

; An exact int from %low to %high, of %size bytes: 1, 2, 4 or 8.
define i1 @integer(ptr %value, i64 %low, i64 %high, i64 %size, ptr %out) {
  %over.at = alloca i32
  %type.at = getelementptr i8, ptr %value, i64 #type
  %type = load ptr, ptr %type.at
  %is.int = icmp eq ptr %type, $int
  br i1 %is.int, label %convert, label %no
convert:
  %number = call i64 @PyLong_AsLongLongAndOverflow(ptr %value, ptr %over.at)
  %over = load i32, ptr %over.at
  %inside = icmp eq i32 %over, 0
  %above = icmp sge i64 %number, %low
  %below = icmp sle i64 %number, %high
  %range = and i1 %above, %below
  %fits = and i1 %inside, %range
  br i1 %fits, label %store, label %no
store:
  switch i64 %size, label %eight [ i64 4, label %four
                                   i64 2, label %two
                                   i64 1, label %one ]
eight:
  store i64 %number, ptr %out
  ret i1 true
four:
  %word = trunc i64 %number to i32
  store i32 %word, ptr %out
  ret i1 true
two:
  %short = trunc i64 %number to i16
  store i16 %short, ptr %out
  ret i1 true
one:
  %byte = trunc i64 %number to i8
  store i8 %byte, ptr %out
  ret i1 true
no:
  ret i1 false
}

; An exact int of 64 bits without a sign.
define i1 @large(ptr %value, ptr %out) {
  %type.at = getelementptr i8, ptr %value, i64 #type
  %type = load ptr, ptr %type.at
  %is.int = icmp eq ptr %type, $int
  br i1 %is.int, label %yes, label %no
yes:
  %fits = call i1 @unsigned(ptr %value, ptr %out)
  ret i1 %fits
no:
  ret i1 false
}

; An int of 64 bits of either sign, or whatever can stand for a pointer.
define i1 @word(ptr %value, ptr %state, i64 %index, ptr %out) {
  %number = call i1 @integer(ptr %value, i64 -9223372036854775808, i64 9223372036854775807, i64 8, ptr %out)
  br i1 %number, label %yes, label %more
more:
  %positive = call i1 @large(ptr %value, ptr %out)
  br i1 %positive, label %yes, label %other
other:
  %address = call i1 @pointer(ptr %value, ptr %state, i64 %index, ptr %out)
  ret i1 %address
yes:
  ret i1 true
}
"""


def readers_text() -> str:
    """Give the functions, with the constants that LLVM takes exactly only by their bits."""
    return _TEXT.replace("~overflow", _bits(OVERFLOW[4])).replace("~infinity", _bits(float("inf")))


def _bits(number: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
