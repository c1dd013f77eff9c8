# Which objects the garbage collector looks at, for records.py: Python itself has no words for it.

cdef extern from "Python.h":
    void PyObject_GC_Track(void*)
    void PyObject_GC_UnTrack(void*)
