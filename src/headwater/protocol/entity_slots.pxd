# The C side of entity_slots.py, inlined by the compiled module that uses it.

cdef extern from *:
    """
    #include "structmember.h"

    static Py_ssize_t headwater_slot_of(PyObject *descriptor) {
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type)
                || ((PyMemberDescrObject *)descriptor)->d_member->type != T_OBJECT_EX) {
            PyErr_SetString(PyExc_TypeError, "an entity whose fields are not slots");
            return -1;
        }
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }

    static inline PyObject *headwater_blank(PyObject *entity) {
        return ((PyTypeObject *)entity)->tp_alloc((PyTypeObject *)entity, 0);
    }

    static inline void headwater_fill(PyObject *entity, Py_ssize_t slot, PyObject *value) {
        PyObject **place = (PyObject **)((char *)entity + slot);
        PyObject *before = *place;
        Py_INCREF(value);
        *place = value;
        Py_XDECREF(before);
    }

    static inline void headwater_put(PyObject *row, Py_ssize_t index, PyObject *value) {
        Py_INCREF(value);
        PyTuple_SET_ITEM(row, index, value);
    }
    """
    Py_ssize_t slot_of "headwater_slot_of"(object descriptor) except -1
    object blank "headwater_blank"(object entity)
    void fill "headwater_fill"(object entity, Py_ssize_t slot, object value) noexcept
    object blank_row "PyTuple_New"(Py_ssize_t size)
    void put "headwater_put"(object row, Py_ssize_t index, object value) noexcept


cdef inline object finished(object row):
    return row
