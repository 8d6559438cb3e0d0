"""The LLVM IR that reads arrays of other libraries; each text is compiled when the first array of its library comes.

The functions are called as ``native/readers.c`` calls them: with the argument, its type, the state of the launch, the
number of the parameter, and where the address goes. They tell whether they took it, and leave to Python what they do
not.
"""

from __future__ import annotations

__all__ = ["CUPY_TEXT", "TENSOR_TEXT"]

TENSOR_TEXT = """
; Ask torch one thing of a tensor: the answer goes to %out, of which the low 32 bits are given.
define internal i32 @torch(ptr %interface, i64 %question, ptr %handle, ptr %out) {
  store i64 -1, ptr %out
  %call.at = getelementptr i8, ptr %interface, i64 %question
  %call = load ptr, ptr %call.at
  %status = call i32 %call(ptr %handle, ptr %out)
  %answer = load i32, ptr %out
  %good = icmp eq i32 %status, 0
  %answered = select i1 %good, i32 %answer, i32 -2
  ret i32 %answered
}

; A strided tensor of torch on this device, of the dtype that was found right, contiguous, of two elements and more.
define i1 @tensor(ptr %value, ptr %type, ptr %state, i64 %index, ptr %out) {
  %answer = alloca i64
  %interface.at = getelementptr i8, ptr %state, i64 #state.tensors
  %interface = load ptr, ptr %interface.at
  %tensor.at = getelementptr i8, ptr %interface, i64 #tensors.tensor_type
  %tensor = load ptr, ptr %tensor.at
  %is.tensor = icmp eq ptr %type, %tensor
  %parameter.at = getelementptr i8, ptr %interface, i64 #tensors.parameter_type
  %parameter = load ptr, ptr %parameter.at
  %is.parameter = icmp eq ptr %type, %parameter
  %either = or i1 %is.tensor, %is.parameter
  br i1 %either, label %layout, label %no
layout:
  %handle.at = getelementptr i8, ptr %interface, i64 #tensors.handle
  %place = load i64, ptr %handle.at
  %handle = getelementptr i8, ptr %value, i64 %place
  %layout.code = call i32 @torch(ptr %interface, i64 #tensors.get_layout, ptr %handle, ptr %answer)
  %strided = icmp eq i32 %layout.code, 0
  br i1 %strided, label %elements, label %no
elements:
  %known.at = getelementptr i8, ptr %state, i64 #state.known_tensors
  %known = load ptr, ptr %known.at
  %right.at = getelementptr i32, ptr %known, i64 %index
  %right = load i32, ptr %right.at
  %dtype = call i32 @torch(ptr %interface, i64 #tensors.get_dtype, ptr %handle, ptr %answer)
  %fits = icmp eq i32 %dtype, %right
  br i1 %fits, label %kind, label %no
kind:
  %mine.at = getelementptr i8, ptr %state, i64 #state.tensor_device_type
  %mine = load i32, ptr %mine.at
  %device = call i32 @torch(ptr %interface, i64 #tensors.get_device_type, ptr %handle, ptr %answer)
  %here = icmp eq i32 %device, %mine
  br i1 %here, label %ordinal, label %no
ordinal:
  %number.at = getelementptr i8, ptr %state, i64 #state.tensor_device_index
  %number = load i32, ptr %number.at
  %index.code = call i32 @torch(ptr %interface, i64 #tensors.get_device_index, ptr %handle, ptr %answer)
  %this.one = icmp eq i32 %index.code, %number
  br i1 %this.one, label %count, label %no
count:
  call i32 @torch(ptr %interface, i64 #tensors.get_numel, ptr %handle, ptr %answer)
  %elements.count = load i64, ptr %answer
  %several = icmp sgt i64 %elements.count, 1
  br i1 %several, label %order, label %no
order:
  %contiguous = call i32 @torch(ptr %interface, i64 #tensors.is_contiguous, ptr %handle, ptr %answer)
  %flag = and i32 %contiguous, 255
  %in.order = icmp eq i32 %flag, 1
  br i1 %in.order, label %address, label %no
address:
  %refused = call i32 @torch(ptr %interface, i64 #tensors.get_data_ptr, ptr %handle, ptr %answer)
  %failed = icmp eq i32 %refused, -2
  br i1 %failed, label %no, label %yes
yes:
  %data = load i64, ptr %answer
  store i64 %data, ptr %out
  ret i1 true
no:
  ret i1 false
}
"""
"""torch's tensors, by ``devices.arguments.tensors.TensorInterface``."""

CUPY_TEXT = """
; Drop the error that an attribute or a call raised: Python asks again, and tells.
define internal i1 @forget() {
  call void @PyErr_Clear()
  ret i1 false
}

; Whether the attribute of an object is that very object.
define internal i1 @same(ptr %object, ptr %interface, i64 %named, ptr %wanted) {
  %name.at = getelementptr i8, ptr %interface, i64 %named
  %name = load ptr, ptr %name.at
  %found = call ptr @PyObject_GetAttr(ptr %object, ptr %name)
  %missing = icmp eq ptr %found, null
  br i1 %missing, label %no, label %look
look:
  call void @Py_DecRef(ptr %found)
  %is = icmp eq ptr %found, %wanted
  ret i1 %is
no:
  %never = call i1 @forget()
  ret i1 %never
}

; An attribute that is an address or a handle.
define internal i1 @address(ptr %object, ptr %interface, i64 %named, ptr %out) {
  %name.at = getelementptr i8, ptr %interface, i64 %named
  %name = load ptr, ptr %name.at
  %found = call ptr @PyObject_GetAttr(ptr %object, ptr %name)
  %missing = icmp eq ptr %found, null
  br i1 %missing, label %no, label %look
look:
  %type.at = getelementptr i8, ptr %found, i64 #type
  %type = load ptr, ptr %type.at
  %is.int = icmp eq ptr %type, $int
  br i1 %is.int, label %convert, label %drop
convert:
  %number = call i64 @PyLong_AsUnsignedLongLong(ptr %found)
  store i64 %number, ptr %out
  call void @Py_DecRef(ptr %found)
  %all = icmp eq i64 %number, -1
  br i1 %all, label %no, label %yes
drop:
  call void @Py_DecRef(ptr %found)
  ret i1 false
yes:
  ret i1 true
no:
  %never = call i1 @forget()
  ret i1 %never
}

; Whether CuPy works in the stream of the launch: 0 and 1 are the same.
define internal i1 @stream(ptr %interface, ptr %state) {
  %argument = alloca ptr
  %handle.at = alloca i64
  %ordinal.at = getelementptr i8, ptr %interface, i64 #cupy.ordinal
  %ordinal = load ptr, ptr %ordinal.at
  store ptr %ordinal, ptr %argument
  %get.at = getelementptr i8, ptr %interface, i64 #cupy.get_stream
  %get = load ptr, ptr %get.at
  %stream = call ptr @PyObject_VectorcallDict(ptr %get, ptr %argument, i64 1, ptr null)
  %raised = icmp eq ptr %stream, null
  br i1 %raised, label %no, label %look
look:
  %answered = call i1 @address(ptr %stream, ptr %interface, i64 #cupy.name_ptr, ptr %handle.at)
  call void @Py_DecRef(ptr %stream)
  br i1 %answered, label %compare, label %no
compare:
  %handle = load i64, ptr %handle.at
  %mine.at = getelementptr i8, ptr %state, i64 #state.stream
  %mine = load i64, ptr %mine.at
  %default = icmp ule i64 %handle, 1
  %mine.default = icmp ule i64 %mine, 1
  %both = and i1 %default, %mine.default
  %equal = icmp eq i64 %handle, %mine
  %one = or i1 %both, %equal
  ret i1 %one
no:
  %never = call i1 @forget()
  ret i1 %never
}

; An array of CuPy on this GPU, of the dtype that was found right, contiguous, not empty, and in this stream.
define i1 @array(ptr %value, ptr %type, ptr %state, i64 %index, ptr %out) {
  %interface.at = getelementptr i8, ptr %state, i64 #state.cupy
  %interface = load ptr, ptr %interface.at
  %array.at = getelementptr i8, ptr %interface, i64 #cupy.array_type
  %array = load ptr, ptr %array.at
  %is.array = icmp eq ptr %type, %array
  br i1 %is.array, label %elements, label %no
elements:
  %known.at = getelementptr i8, ptr %state, i64 #state.known
  %known = load ptr, ptr %known.at
  %right.at = getelementptr ptr, ptr %known, i64 %index
  %right = load ptr, ptr %right.at
  %fits = call i1 @same(ptr %value, ptr %interface, i64 #cupy.name_dtype, ptr %right)
  br i1 %fits, label %order, label %no
order:
  %in.order = call i1 @same(ptr %value, ptr %interface, i64 #cupy.name_contiguous, ptr $True)
  br i1 %in.order, label %size, label %no
size:
  %empty = call i1 @same(ptr %value, ptr %interface, i64 #cupy.name_size, ptr $zero)
  br i1 %empty, label %no, label %queue
queue:
  %ordered = call i1 @stream(ptr %interface, ptr %state)
  br i1 %ordered, label %memory, label %no
memory:
  %name.at = getelementptr i8, ptr %interface, i64 #cupy.name_data
  %name = load ptr, ptr %name.at
  %data = call ptr @PyObject_GetAttr(ptr %value, ptr %name)
  %missing = icmp eq ptr %data, null
  br i1 %missing, label %raised, label %look
look:
  %ordinal.at = getelementptr i8, ptr %interface, i64 #cupy.ordinal
  %ordinal = load ptr, ptr %ordinal.at
  %here = call i1 @same(ptr %data, ptr %interface, i64 #cupy.name_device, ptr %ordinal)
  %there = call i1 @address(ptr %data, ptr %interface, i64 #cupy.name_ptr, ptr %out)
  call void @Py_DecRef(ptr %data)
  %good = and i1 %here, %there
  ret i1 %good
raised:
  %never = call i1 @forget()
  ret i1 %never
no:
  ret i1 false
}
"""
"""CuPy's arrays, by ``devices.arguments.cupy_arrays.CupyInterface``."""
